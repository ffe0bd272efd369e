"""Writes ``docs/alerts.md``: each alert with its meaning and what to do, as the rules say it."""

from __future__ import annotations

import re
from typing import Any

import yaml

_HEAD = """\
# Alerts

What the alerts of `deploy/monitoring/rules/alerts.yaml` mean, and what to do. [monitoring.md](monitoring.md)
says how Prometheus gets them. This page is made from that file by `python -m tools.chart.generate`.

**critical**: pods fail or will soon. **warning**: somebody should look today. **info**: good to know.
"""
_GROUPS = {
    "gpu-dra-sick": "Sick GPUs",
    "gpu-dra-driver": "The driver",
    "gpu-dra-memory": "Memory",
    "gpu-dra-capacity": "Capacity and waiting",
}


def alerts_page(rules: str) -> str:
    """The text of the page, by the text of the file of alerts."""
    groups = yaml.safe_load(rules)["groups"]
    listed = "".join(
        f"| [{rule['alert']}](#{rule['alert'].lower()}) | {rule['labels']['severity']} | {_summary(rule)} |\n"
        for group in groups
        for rule in group["rules"]
    )
    parts = [_HEAD, "\n| alert | severity | says |\n|---|---|---|\n", listed]
    for group in groups:
        parts.append(f"\n## {_GROUPS[group['name']]}\n")
        parts += [_section(rule) for rule in group["rules"]]
    return "".join(parts)


def _section(rule: dict[str, Any]) -> str:
    said = rule["annotations"]
    waits = f" for {rule['for']}" if "for" in rule else ""
    needs = f"\nIt needs the metrics of {said['needs']} beside the driver's.\n" if "needs" in said else ""
    return (
        f"\n### {rule['alert']}\n{said['description']}\n\n**What to do:** {_plain(said['action'])}\n{needs}\n"
        f"It fires, as {rule['labels']['severity']}, when this is so{waits}:\n"
        f"```\n{rule['expr'].strip()}\n```\n"
    )


def _summary(rule: dict[str, Any]) -> str:
    return _plain(rule["annotations"]["summary"])


def _plain(template: str) -> str:
    """A sentence with names in place of what Prometheus fills in."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", "N", named)
