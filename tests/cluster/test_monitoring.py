"""A real Prometheus scrapes the running driver while GPUs are had in every form: rules and panels answer."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.monitored_cluster import FORMS, Monitored, monitored
from tests.cluster.prometheus import Prometheus, Target, prometheus, promtool
from tests.deploy.monitoring.rule_files import CASES, RULES, alerts, boards, filled_in, panels, records
from tests.eventually import eventually
from tests.gpus import RemappedRows

WRONG = {"GpuNeedsReset", "GpuMemoryFaulty", "GpuHangs", "GpuXidReported"}
WAITING = {
    *("GpuPodsWait", "GpuPodWaitsLong", "GpuQueueTimeLong", "GpuTopologyRefused"),
    *("GpuMemoryNearlyUsedUp", "GpuDraDown"),
}


@dataclass(frozen=True, slots=True)
class Watched:
    """The cluster and who watches it."""

    cluster: Monitored
    prometheus: Prometheus

    def wait_none_empty(self, asked: dict[str, str]) -> None:
        """Wait until each of the expressions, here by their names, has given something."""
        empty = list(asked)

        def still_empty() -> list[str]:
            empty[:] = [name for name in empty if not self.prometheus.ask(asked[name])]
            return empty

        eventually("no expression is empty", still_empty, lambda names: not names)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with monitored() as cluster:
        folder = tmp_path_factory.mktemp("prometheus")
        gone = Target("127.0.0.1:9", "gpu-dra-webhook-metrics")
        with prometheus(folder, RULES, (*cluster.targets, gone)) as running:
            lost, sick, *_ = cluster.free
            cluster.cut.machine.lose(lost)
            cluster.cut.machine.recovery_action(sick, "drain-and-reset")
            cluster.cut.machine.xid(sick, 94)
            yield Watched(cluster, running)


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", *map(str, RULES))


def test_the_unit_tests_of_rules_pass() -> None:
    promtool("test", "rules", *map(str, CASES))


def test_prometheus_has_loaded_every_rule_and_none_of_them_fails(watched: Watched) -> None:
    def evaluated() -> list[dict[str, str]]:
        groups = watched.prometheus.get("rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if all(rule["health"] == "ok" for rule in found) else []

    found = watched.prometheus.wait_until(evaluated, "every rule is evaluated, and none fails")
    assert {rule["name"] for rule in found} == alerts().keys() | records().keys()


def test_every_recording_rule_gives_a_value(watched: Watched) -> None:
    watched.wait_none_empty({name: name for name in records()})


def test_every_form_is_counted_by_tenant_and_tier(watched: Watched) -> None:
    namespace = watched.cluster.namespace

    def held() -> dict[str, float]:
        found = watched.prometheus.ask(f'gpu_dra:tenant_tier_gpus:sum{{claim_namespace="{namespace}"}}')
        return {one["metric"]["form"]: round(float(one["value"][1]), 3) for one in found}

    told = eventually("every form", held, lambda found: found.keys() == FORMS.keys())
    assert told["exclusive"] == 1
    assert 0 < told["mig"] < 0.2
    assert told["mps"] == 0.25


@pytest.mark.parametrize("uid", boards())
def test_no_panel_of_a_dashboard_is_empty(watched: Watched, uid: str) -> None:
    asked = {
        f"{panel['title']} {target['refId']}": filled_in(target["expr"])
        for panel in panels(boards()[uid])
        for target in panel["targets"]
    }
    assert len(asked) > 10
    watched.wait_none_empty(asked)


def test_alerts_fire_for_what_is_wrong_and_clear_when_it_is_over(watched: Watched) -> None:
    running, held = watched.prometheus, watched.cluster.held.machine
    held.recovery_action(1, "reset")
    held.rows(2, RemappedRows(0, 1, pending=False, failed=True))
    held.hang(gpu=3)

    eventually("all alerts fire", running.firing, lambda one: one >= WRONG | WAITING)

    for alert in running.get("alerts")["alerts"]:
        for name, text in alert["annotations"].items():
            assert "<no value>" not in text, (alert["labels"]["alertname"], name)
            assert "<error" not in text, (alert["labels"]["alertname"], name)
    watched.cluster.cut.machine.reset(watched.cluster.free[1])
    held.heal()
    held.reset(1)
    held.replace_board(2)
    eventually("no alert fires", running.firing, WRONG.isdisjoint)


def test_a_gpu_that_is_lost_is_told_of_until_it_is_back(watched: Watched) -> None:
    running = watched.prometheus
    eventually("GpuLost fires", running.firing, lambda alerts: "GpuLost" in alerts)
    (alert,) = [one for one in running.get("alerts")["alerts"] if one["labels"]["alertname"] == "GpuLost"]
    lost = watched.cluster.free[0]
    assert str(lost) in alert["annotations"]["summary"]
    assert watched.cluster.cut.node.name in alert["annotations"]["summary"]

    watched.cluster.cut.machine.restore(lost)

    eventually("it clears", running.firing, lambda alerts: "GpuLost" not in alerts)
