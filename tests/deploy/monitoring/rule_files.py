"""The shipped rules and dashboards as tests read them, and the series that they are made of."""

import json
import re
from functools import cache
from pathlib import Path

import yaml

from driver.process.metrics.table import TABLE
from tests.clusters import Object

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "chart" / "monitoring"
RULES = tuple(sorted((MONITORING / "rules").glob("*.yaml")))
CASES = tuple(sorted((Path(__file__).parent / "promtool").glob("*.yaml")))
DASHBOARDS = tuple(sorted((MONITORING / "dashboards").glob("*.json")))

OF_OTHERS = {
    "dynamic_resource_allocation_resource_claims": "kube-controller-manager",
    "resourceclaim_controller_resource_claims": "kube-controller-manager",
    "scheduler_unschedulable_pods": "kube-scheduler",
    "kube_node_info": "kube-state-metrics",
    "kube_pod_created": "kube-state-metrics",
    "kube_pod_status_scheduled_time": "kube-state-metrics",
    "kube_pod_status_unschedulable": "kube-state-metrics",
    "kubelet_topology_manager_admission_errors_total": "kubelet",
}
"""Series that do not come from the driver, and who has them."""
OF_PROMETHEUS = {"ALERTS", "up"}

_NO_SERIES = re.compile(
    r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|\$\w+"
)
_WORDS = {"and", "or", "unless", "bool", "by", "on"}


@cache
def rules() -> list[Object]:
    """All rules, of records and alerts."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


@cache
def alerts() -> dict[str, Object]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def records() -> dict[str, Object]:
    """The recording rules by the series that they make."""
    return {rule["record"]: rule for rule in rules() if "record" in rule}


def series_in(expression: str) -> set[str]:
    """The series that an expression of PromQL asks for."""
    bare = _NO_SERIES.sub(" ", expression)
    names = set(re.findall(r"(?<![\w:.])[a-zA-Z_][\w:]*(?![\w:]*\s*\()", bare))
    return names - _WORDS


@cache
def known_series() -> set[str]:
    """Every name under which some value is found in Prometheus."""
    driver = {
        name + end
        for one in TABLE.rows
        for name in [one.name]
        for end in (("_bucket", "_count", "_sum") if one.kind == "histogram" else ("",))
    }
    return driver | set(records()) | set(OF_OTHERS) | OF_PROMETHEUS


def needs(series: set[str]) -> set[str]:
    """The exporters beside the driver that these series take, through recording rules as well."""
    found = {OF_OTHERS[name] for name in series if name in OF_OTHERS}
    made = records()
    for name in series & made.keys():
        found |= needs(series_in(made[name]["expr"]))
    return found


def boards() -> dict[str, Object]:
    """The dashboards by their uid."""
    loaded = [json.loads(file.read_text()) for file in DASHBOARDS]
    return {board["uid"]: board for board in loaded}


def panels(board: Object) -> list[Object]:
    """The panels of a dashboard that show something, without its rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: Object) -> list[str]:
    """All that a dashboard's panels ask Prometheus, Grafana's variables filled in."""
    return [filled_in(target["expr"]) for panel in panels(board) for target in panel["targets"]]


def filled_in(expression: str) -> str:
    """An expression as Grafana sends it when everything is chosen and an hour is shown."""
    values = {"$__rate_interval": "1m", "$__range": "1h", "$__interval_ms": "1000", "$__interval": "1s"}
    values["$price"] = "3.06"
    for name in ("cluster", "node", "namespace"):
        values[f"${name}"] = ".*"
    for name, value in values.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression
