"""When a GPU falls ill the status of its claims says so, events tell it once, and both end with the fault."""

from __future__ import annotations

from typing import Any

from driver.devices.names import gpu_device_name
from driver.health.verdict import Health
from kubeletplugin.reports.claim_status import HealthChange, health_change
from tests.kubeletplugin.reports.claim_cluster import Cluster, Start

LOST = Health("Unhealthy", "it fell off the bus", "GpuLost")


def whole(cluster: Cluster, name: str, gpu: int) -> str:
    """A prepared claim for a GPU, which the status tells; the device."""
    device = gpu_device_name(cluster.node.gpus[gpu])
    cluster.node.prepare(cluster.claim(name, device))
    cluster.wait_told(name, device)
    cluster.look()
    return device


def test_a_device_that_falls_ill_is_not_ready_until_it_is_well(cluster: Cluster, start: Start) -> None:
    start()
    device = whole(cluster, "train", 0)
    cluster.ill = {device: LOST}
    cluster.look()
    cluster.wait_ready("train", device, "False", "GpuLost")
    assert cluster.told("train")[device]["conditions"][0]["message"] == "it fell off the bus"

    cluster.ill = {}
    cluster.look()
    cluster.wait_ready("train", device, "True", "GpuReady")
    assert [(kind, word) for kind, _, word, _ in cluster.told_events(2)] == [
        ("ResourceClaim", "GpuSick"),
        ("ResourceClaim", "GpuWell"),
    ]


def test_looks_that_change_nothing_cost_no_request_and_no_event(cluster: Cluster, start: Start) -> None:
    start()
    device = whole(cluster, "train", 0)
    cluster.ill = {device: LOST}
    cluster.look()
    cluster.wait_ready("train", device, "False", "GpuLost")
    asked = cluster.asked("get"), cluster.asked("patch")

    for _ in range(3):
        cluster.look()
    whole(cluster, "other", 1)
    assert (cluster.asked("get"), cluster.asked("patch")) == (asked[0] + 1, asked[1] + 1)
    assert len(cluster.told_events(1)) == 1


def test_a_restarted_plugin_tells_no_fault_anew_and_forgets_none_before_it_has_looked(
    cluster: Cluster, start: Start
) -> None:
    start()
    device = whole(cluster, "train", 0)
    cluster.ill = {device: LOST}
    cluster.look()
    cluster.wait_ready("train", device, "False", "GpuLost")

    start()
    whole(cluster, "other", 1)
    assert cluster.is_ready("train", device, "False", "GpuLost")
    assert len(cluster.told_events(1)) == 1

    cluster.unseen = {device}
    statuses = start()
    whole(cluster, "third", 2)
    assert cluster.is_ready("train", device, "False", "GpuLost"), "nobody has looked at it yet"
    cluster.unseen, cluster.ill = set(), {}
    cluster.look()
    statuses.changed()
    cluster.wait_ready("train", device, "True", "GpuReady")
    assert [word for _, _, word, _ in cluster.told_events(2)] == ["GpuSick", "GpuWell"]


def test_a_fault_that_began_while_no_plugin_ran_is_told(cluster: Cluster, start: Start) -> None:
    start()
    device = whole(cluster, "train", 0)
    cluster.ill = {device: LOST}
    start()

    cluster.wait_ready("train", device, "False", "GpuLost")
    assert cluster.told_events(1) == [("ResourceClaim", "train", "GpuSick", f"{device}: it fell off the bus")]


def test_the_pods_of_a_claim_are_told_unless_they_are_many(cluster: Cluster, start: Start) -> None:
    start()
    few, many = whole(cluster, "few", 0), whole(cluster, "many", 1)
    for name, count in (("few", 2), ("many", 5)):
        users = [
            {"resource": "pods", "name": f"{name}-{number}", "uid": f"{name}-{number}"}
            for number in range(count)
        ]
        cluster.write_status(name, {**cluster.stored(name)["status"], "reservedFor": users})
    cluster.ill = {few: LOST, many: LOST}
    cluster.look()

    cluster.wait_ready("few", few, "False", "GpuLost")
    cluster.wait_ready("many", many, "False", "GpuLost")
    assert sorted((kind, name) for kind, name, _, _ in cluster.told_events(4)) == [
        ("Pod", "few-0"),
        ("Pod", "few-1"),
        ("ResourceClaim", "few"),
        ("ResourceClaim", "many"),
    ]


def test_a_fault_of_before_does_not_stay_when_the_claim_is_prepared_on_an_ill_device(
    cluster: Cluster, start: Start
) -> None:
    start()
    device = gpu_device_name(cluster.node.gpus[0])
    cluster.ill = {device: LOST}
    cluster.look(device)
    ref = cluster.claim("tolerant", device)
    cluster.writer.saw(cluster.stored("tolerant"))
    cluster.node.prepare(ref)

    cluster.wait_told("tolerant", device)
    assert cluster.is_ready("tolerant", device, "False", "GpuLost")
    assert [word for _, _, word, _ in cluster.told_events(1)] == ["GpuSick"]


def test_no_event_is_posted_before_the_status_is_written(cluster: Cluster, start: Start) -> None:
    start()
    device = whole(cluster, "train", 0)
    fault = cluster.server.fail("patch", "/status", code=500, times=2)
    cluster.ill = {device: LOST}
    cluster.look()

    cluster.wait_ready("train", device, "False", "GpuLost")
    assert fault.times == 0
    assert len(cluster.told_events(1)) == 1


def entry(status: str, reason: str, device: str = "gpu-0", message: str = "words") -> dict[str, Any]:
    """An entry of ``status.devices`` with the condition Ready."""
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"driver": "gpu.nvidia.com", "pool": "node", "device": device, "conditions": [ready]}


WELL, GONE = entry("True", "GpuReady"), entry("False", "GpuLost")


def test_falling_ill_and_getting_well_are_news() -> None:
    assert health_change([WELL], [GONE]) == HealthChange(sick=("gpu-0: words",))
    assert health_change([], [GONE]) == HealthChange(sick=("gpu-0: words",))
    assert health_change([GONE], [WELL]) == HealthChange(well=("gpu-0 is healthy again",))


def test_what_stays_is_no_news() -> None:
    for same in (WELL, GONE):
        assert health_change([same], [same]) == HealthChange()
    assert health_change([], [WELL]) == HealthChange()


def test_another_reason_is_news_and_other_words_are_not() -> None:
    assert health_change([GONE], [entry("False", "NeedsReset")]).sick == ("gpu-0: words",)
    assert health_change([GONE], [entry("False", "GpuLost", message="other")]) == HealthChange()


def test_a_memory_limit_has_events_of_its_own() -> None:
    limit = entry("False", "MemoryLimitNotHeld")
    assert health_change([WELL], [limit]) == health_change([limit], [WELL]) == HealthChange()
    assert health_change([limit], [GONE]).sick == ("gpu-0: words",)


def test_each_device_is_judged_by_its_own_entry() -> None:
    other = entry("False", "GpuLost", "gpu-1")
    found = health_change([WELL, other], [GONE, entry("True", "GpuReady", "gpu-1")])
    assert found == HealthChange(("gpu-0: words",), ("gpu-1 is healthy again",))
