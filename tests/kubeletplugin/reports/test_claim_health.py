"""When a GPU falls ill the status of its claims says so, events tell it once, and both end with the fault."""

import pytest

from kubeletplugin.reports.claim_status import HealthChange, health_change
from tests.clusters import Object
from tests.gpus import Health, gpu_device_name
from tests.kubeletplugin.reports.claim_cluster import Cluster, Start

LOST = Health("Unhealthy", "it fell off the bus", "GpuLost")


def whole(cluster: Cluster, name: str, gpu: int) -> str:
    """A prepared claim for a GPU, which the status tells; the device."""
    device = gpu_device_name(cluster.node.gpus[gpu])
    cluster.node.prepare(cluster.claim(name, device))
    cluster.wait_told(name, device)
    cluster.look()
    return device


def test_a_device_that_falls_ill_is_not_ready_until_it_is_well_which_is_told_once(
    cluster: Cluster, start: Start
) -> None:
    start()
    device = whole(cluster, "train", 0)
    fault = cluster.server.fail("patch", "/status", code=500, times=2)
    cluster.ill = {device: LOST}
    cluster.look()
    cluster.wait_ready("train", device, "False", "GpuLost")
    assert (fault.times, len(cluster.told_events(1))) == (0, 1), "it is told when it is written"
    assert cluster.told("train")[device]["conditions"][0]["message"] == "it fell off the bus"

    asked = cluster.asked("get"), cluster.asked("patch")
    for _ in range(3):
        cluster.look()
    whole(cluster, "other", 1)
    assert (cluster.asked("get"), cluster.asked("patch")) == (asked[0] + 1, asked[1] + 1), "for the other"
    fault = cluster.server.fail("patch", "/status", code=500, times=2)
    cluster.ill = {}
    cluster.look()
    cluster.wait_ready("train", device, "True", "GpuReady")
    assert fault.times == 0
    assert [(kind, word) for kind, _, word, _ in cluster.told_events(2)] == [
        ("ResourceClaim", "GpuSick"),
        ("ResourceClaim", "GpuWell"),
    ]


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


def entry(status: str, reason: str, device: str = "gpu-0", message: str = "words") -> Object:
    """An entry of ``status.devices`` with the condition Ready."""
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
    return {"driver": "gpu.nvidia.com", "pool": "node", "device": device, "conditions": [ready]}


WELL, GONE = entry("True", "GpuReady"), entry("False", "GpuLost")


OTHER_REASON, OTHER_WORDS = entry("False", "NeedsReset"), entry("False", "GpuLost", message="other")
LIMIT, SECOND = entry("False", "MemoryLimitNotHeld"), entry("False", "GpuLost", "gpu-1")
THIRD = entry("True", "GpuReady", "gpu-1")
SICK, BETTER = ("gpu-0: words",), ("gpu-0 is healthy again",)


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        ([WELL], [GONE], HealthChange(sick=SICK)),
        ([], [GONE], HealthChange(sick=SICK)),
        ([GONE], [WELL], HealthChange(well=BETTER)),
        ([WELL], [WELL], HealthChange()),
        ([GONE], [GONE], HealthChange()),
        ([], [WELL], HealthChange()),
        ([GONE], [OTHER_REASON], HealthChange(sick=SICK)),
        ([GONE], [OTHER_WORDS], HealthChange()),
        # A memory limit has events of its own.
        ([WELL], [LIMIT], HealthChange()),
        ([LIMIT], [WELL], HealthChange()),
        ([LIMIT], [GONE], HealthChange(sick=SICK)),
        ([WELL, SECOND], [GONE, THIRD], HealthChange(SICK, ("gpu-1 is healthy again",))),
    ],
)
def test_falling_ill_and_getting_well_are_news(
    before: list[Object], now: list[Object], news: HealthChange
) -> None:
    assert health_change(before, now) == news
