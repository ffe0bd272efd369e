"""The chart has Prometheus and Grafana get its own rules and dashboards, when it is asked to."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cluster.prometheus import promtool
from tests.clusters import Object
from tests.deploy.monitoring.rule_files import DASHBOARDS, RULES, alerts
from tools.testbed.chart import HELMS, rendered

OF_MONITORING = {"ServiceMonitor", "PrometheusRule"}


def of_kind(values: Object, kind: str, program: str = "helm3") -> dict[str, Object]:
    """The rendered objects of a kind, by name."""
    return {one["metadata"]["name"]: one for one in rendered(values, program=program) if one["kind"] == kind}


def test_nothing_of_it_is_made_unasked() -> None:
    assert OF_MONITORING.isdisjoint(one["kind"] for one in rendered())
    assert not any(name.endswith("-dashboard") for name in of_kind({}, "ConfigMap"))


@pytest.mark.parametrize("program", HELMS)
def test_the_rules_are_those_of_the_files_and_promtool_takes_them(program: str, tmp_path: Path) -> None:
    labels = {"release": "prometheus"}
    values = {"metrics": {"enabled": True}, "prometheusRule": {"enabled": True, "labels": labels}}
    made = of_kind(values, "PrometheusRule", program)

    for file in RULES:
        rule = made.pop(f"gpu-dra-{file.stem}")
        assert rule["metadata"]["labels"] == labels
        assert rule["spec"] == yaml.safe_load(file.read_text())
        (tmp_path / file.name).write_text(yaml.safe_dump(rule["spec"]))
        promtool("check", "rules", str(tmp_path / file.name))
    assert made == {}


def test_alerts_lead_to_where_the_docs_are_read() -> None:
    url = "https://git.example/gpus/docs"
    values = {"metrics": {"enabled": True}, "prometheusRule": {"enabled": True, "docsUrl": url}}
    groups = of_kind(values, "PrometheusRule")["gpu-dra-alerts"]["spec"]["groups"]
    led = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}

    assert led == {f"{url}/monitoring.md#{name.lower()}" for name in alerts()}


@pytest.mark.parametrize("program", HELMS)
def test_the_dashboards_are_those_of_the_files_with_the_label_of_the_sidecar(program: str) -> None:
    values = {
        "metrics": {"enabled": True},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
    }
    made = of_kind(values, "ConfigMap", program)

    for file in DASHBOARDS:
        found = made[f"{file.stem}-dashboard"]
        assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert found["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
        assert found["data"].keys() == {file.name}
        assert json.loads(found["data"][file.name]) == json.loads(file.read_text())


def test_the_pod_that_has_the_gpu_is_not_overwritten_by_the_one_that_is_scraped() -> None:
    (monitor,) = of_kind(
        {"metrics": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "ServiceMonitor"
    ).values()

    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
