"""The tables of all metrics, of alerts and of the classes of XIDs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from driver.health.xids import XID_CLASSES, XIDS, XidClass
from driver.process.metrics.table import TABLE, Process, Series
from tools.docs.lookup.marked import code, table

ALERTS = Path(__file__).resolve().parents[3] / "deploy" / "chart" / "monitoring" / "rules" / "alerts.yaml"

_PROCESSES: Mapping[Process, str] = {
    "kubeletplugin": "Kubelet plugin (port 9402)",
    "controller": "Controller (port 9401)",
    "webhook": "Webhook (port 9400)",
    "preemptor": "Preemptor (port 9403)",
    "cliques": "Cliques (port 9404)",
}
_GROUPS = {
    "gpu-dra-sick": "Sick GPUs",
    "gpu-dra-driver": "The driver",
    "gpu-dra-memory": "Memory",
    "gpu-dra-capacity": "Capacity and waiting",
}
_ALERT = re.compile(r"^\| (Gpu\w+) \|", re.MULTILINE)
"""The begin of an alert's row, which gets an anchor."""

_XID_CLASSES: Mapping[XidClass, tuple[str, str]] = {
    "application": ("none", "the program that caused it has failed"),
    "informational": ("none; the driver checks the GPU", "go on"),
    "contained": ("`xid`", "go on, except the program that was hit"),
    "needs-reset": ("`xid`, `needs-reset`", "fail; `Unhealthy` in their status"),
    "needs-reboot": ("`xid`, `needs-reboot`", "fail; `Unhealthy` in their status"),
    "ignore": ("none", "go on"),
}
_FEWEST_OF_A_RUN = 3
_OTHER_CODES: Mapping[XidClass, str] = {
    "contained": ", and all unknown codes",
    "ignore": "only those that you list",
}


def xid_table() -> str:
    """The classes of XIDs with their codes and what follows."""
    if set(_XID_CLASSES) != set(XID_CLASSES):
        raise ValueError("classes of XIDs and words in monitoring.py differ")
    rows = [
        (code(name), _codes(name) + _OTHER_CODES.get(name, ""), taint, pods)
        for name, (taint, pods) in _XID_CLASSES.items()
    ]
    return table(("class", "codes", "taint", "running pods"), rows)


def _codes(name: XidClass) -> str:
    """The codes of a class; three and more in a row as ``39 to 41``."""
    runs: list[list[int]] = []
    for found in sorted(found for found, xid in XIDS.items() if xid.xid_class == name):
        if runs and found == runs[-1][-1] + 1:
            runs[-1].append(found)
        else:
            runs.append([found])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) >= _FEWEST_OF_A_RUN else ", ".join(map(str, run)) for run in runs
    )


def metric_tables() -> str:
    """The tables of all series, one for each process."""
    return "\n".join(
        f"### {title}\n{_series_table(TABLE.of(process))}" for process, title in _PROCESSES.items()
    )


def alert_tables() -> str:
    """A table for each group of alerts, to whose rows the ``runbook_url`` of the alerts lead."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    head = ("alert", "severity", "means", "what to do")
    text = "\n".join(
        f"### {_GROUPS[group['name']]}\n{table(head, map(_alert, group['rules']))}" for group in groups
    )
    return _ALERT.sub(lambda row: f'| <a id="{row[1].lower()}"></a>{row[1]} |', text)


def _series_table(series: Iterable[Series]) -> str:
    rows = [
        (code(one.name), one.kind, one.help, ", ".join(map(code, one.labels)), one.unit, one.bound)
        for one in series
    ]
    return table(("metric", "type", "meaning", "labels", "unit", "series"), rows)


def _alert(rule: dict[str, Any]) -> tuple[str, str, str, str]:
    said = rule["annotations"]
    needs = f" Needs metrics of {said['needs']}." if "needs" in said else ""
    after = f", {rule['for']}" if "for" in rule else ""
    severity = f"{rule['labels']['severity']}{after}"
    return rule["alert"], severity, said["description"] + needs, _filled(said["action"])


def _filled(template: str) -> str:
    """A sentence with words in place of the templates that Prometheus fills in."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", named)
