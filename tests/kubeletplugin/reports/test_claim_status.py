"""A claim's status tells the UUIDs of the partitions made for it, and prepare never waits for that."""

import pytest

from envtest.embedded.server import ALWAYS
from tests.eventually import eventually
from tests.gpus import DRIVER_NAME, gpu_device_name
from tests.kubeletplugin.fake_node import POOL
from tests.kubeletplugin.reports.claim_cluster import CLAIMS, OTHER, Cluster, Start


def test_every_device_of_a_claim_is_told_whatever_its_kind(cluster: Cluster, start: Start) -> None:
    node = cluster.node
    start()
    whole = gpu_device_name(node.gpus[2])
    parts = [node.part(), node.partition(1, "3g.40gb", 4)]
    node.prepare(cluster.claim("train", *parts, whole))

    cluster.wait_told("train", whole)
    assert sorted(cluster.told("train")) == sorted([*parts, whole])
    assert cluster.told("train")[parts[1]]["data"]["profile"] == "3g.40gb"
    assert cluster.told("train")[whole]["data"] == {
        "uuid": node.handle(2).uuid(),
        "pciBusID": str(node.gpus[2]),
    }
    assert cluster.is_ready("train", whole, "True", "GpuReady")


def test_a_claim_whose_status_says_nothing_yet_costs_one_request(cluster: Cluster, start: Start) -> None:
    node = cluster.node
    statuses = start()
    device = gpu_device_name(node.gpus[1])
    ref = cluster.claim("whole", device)
    cluster.writer.saw(cluster.stored("whole"))  # as prepare does
    node.prepare(ref)

    cluster.wait_told("whole", device)
    statuses.changed()
    node.prepare(cluster.claim("other", node.part(6, 2)))
    cluster.wait_told("other", node.part(6, 2))
    assert (cluster.asked("get"), cluster.asked("patch")) == (1, 2), "the look is at the other one"


def test_what_other_drivers_and_other_conditions_say_stays(cluster: Cluster, start: Start) -> None:
    device = cluster.node.part()
    ref = cluster.claim("train", device)
    status = cluster.stored("train")["status"]
    address = {"interfaceName": "eth1"}
    when = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    other = {"type": "Warm", "status": "False", "reason": "Cold", "message": "", **when}
    ours = {"driver": DRIVER_NAME, "pool": POOL, "device": device, "conditions": [other]}
    cluster.write_status("train", {**status, "devices": [{**OTHER, "networkData": address}, ours]})
    start()
    cluster.node.prepare(ref)

    eventually("the device has data", lambda: cluster.told("train")[device], lambda told: "data" in told)
    assert {one["type"] for one in cluster.told("train")[device]["conditions"]} == {"Warm", "Ready"}
    entries = cluster.stored("train")["status"]["devices"]
    assert [one.get("networkData") for one in entries if one["driver"] != DRIVER_NAME] == [address]


def test_a_restarted_plugin_tells_what_is_missing_and_writes_nothing_twice(
    cluster: Cluster, start: Start
) -> None:
    node = cluster.node
    first, second = node.part(), node.part(5)
    start()
    node.prepare(cluster.claim("first", first))
    before = cluster.wait_told("first", first)
    node.on_step = lambda _: None
    node.prepare(cluster.claim("second", second))

    start()
    cluster.wait_told("second", second)
    eventually("one look before, two now", lambda: cluster.asked("get"), lambda asked: asked == 3)
    assert cluster.asked("patch") == 2
    assert cluster.told("first")[first] == before


def test_a_claim_that_was_given_the_same_device_again_is_told_again(cluster: Cluster, start: Start) -> None:
    start()
    device = cluster.node.part()
    ref = cluster.claim("shared", device)
    cluster.node.prepare(ref)
    cluster.wait_told("shared", device)

    cluster.node.unprepare(ref)
    cluster.write_status("shared", {})
    assert cluster.told("shared") == {}
    cluster.allocate(ref)
    cluster.node.prepare(ref)
    cluster.wait_told("shared", device)


def test_prepare_goes_on_while_the_api_is_away_and_the_status_follows(cluster: Cluster, start: Start) -> None:
    devices = {f"c{place}": cluster.node.part(place) for place in range(7)}
    refs = [cluster.claim(*one) for one in devices.items()]
    cluster.server.stop()
    start()
    for ref in refs:
        cluster.node.prepare(ref)
    cluster.server.start()

    cluster.wait_all_told(devices)
    assert cluster.asked("patch") == 7


@pytest.mark.parametrize("code", [403, 409, 422, 500])
def test_a_write_that_may_succeed_later_is_repeated(cluster: Cluster, start: Start, code: int) -> None:
    cluster.server.fail("patch", "/c0/status", code=code, times=2)
    devices = cluster.prepared(0, 1)
    start()

    cluster.wait_all_told(devices)


def test_a_claim_that_the_api_takes_for_invalid_is_given_up_and_delays_no_other(
    cluster: Cluster, start: Start
) -> None:
    cluster.server.fail("patch", "/c0/status", code=422, times=ALWAYS)
    cluster.prepared(0)
    start()
    cluster.wait_all_told(cluster.prepared(1))
    cluster.wait_all_told(cluster.prepared(2))

    def asked_for_the_first() -> int:
        return sum(one.verb == "patch" and one.name == "c0" for one in list(cluster.server.requests))

    eventually("it is tried five times", asked_for_the_first, lambda asked: asked == 5)
    cluster.wait_all_told(cluster.prepared(3))
    assert asked_for_the_first() == 5
    assert cluster.told("c0") == {}


def test_where_every_write_is_refused_the_api_is_not_asked_for_each_claim(
    cluster: Cluster, start: Start
) -> None:
    fault = cluster.server.fail("patch", "/status", code=403, times=ALWAYS)
    devices = cluster.prepared(*range(7))
    start()
    eventually("three are tried", lambda: cluster.asked("patch"), lambda asked: asked >= 3)
    asked = [(one.verb, one.name) for one in list(cluster.server.requests) if one.name.startswith("c")][:6]
    assert [verb for verb, _ in asked] == ["get", "patch"] * 3
    assert len(set(asked)) == 6, "each round begins with a claim that was not refused before"

    fault.release()
    cluster.wait_all_told(devices)


def test_prepare_does_not_wait_for_a_write_that_hangs(cluster: Cluster, start: Start) -> None:
    hanging = cluster.server.fail("patch", "/status", kind="hang", times=ALWAYS)
    start()
    devices = cluster.prepared(0)
    eventually("the write has begun", lambda: cluster.asked("patch"), lambda asked: asked == 1)
    before = cluster.asked("get")
    devices |= cluster.prepared(1)

    assert (cluster.asked("patch"), cluster.asked("get")) == (1, before)
    hanging.release()
    cluster.wait_all_told(devices)


@pytest.mark.parametrize("fate", ["gone", "replaced", "deallocated"])
def test_a_claim_that_is_not_the_one_any_more_is_left_alone(
    cluster: Cluster, start: Start, fate: str
) -> None:
    device, other = (cluster.node.part(place) for place in (0, 1))
    cluster.node.prepare(cluster.claim("old", device))
    if fate == "deallocated":
        cluster.write_status("old", {})
    else:
        cluster.server.delete(f"{CLAIMS}/old")
    if fate == "replaced":
        cluster.claim("old", device)
    cluster.node.prepare(cluster.claim("new", other))
    start()

    cluster.wait_told("new", other)
    eventually("both were looked at", lambda: cluster.asked("get"), lambda asked: asked == 2)
    assert cluster.asked("patch") == 1
    if fate != "gone":
        assert cluster.told("old") == {}


def test_a_claim_replaced_between_the_look_and_the_write_is_not_written(
    cluster: Cluster, start: Start
) -> None:
    device = cluster.node.part()
    old = cluster.stored(cluster.claim("train", device).name)
    cluster.node.prepare(cluster.node.claim_devices("train", device, uid=old["metadata"]["uid"]))
    before = int(old["metadata"]["resourceVersion"])
    cluster.server.delete(f"{CLAIMS}/train")
    cluster.claim("train", device)
    cluster.server.fail("get", "/train$", kind="stale", resource_version=before)
    start()

    eventually("it looks once more, and sees", lambda: cluster.asked("get"), lambda asked: asked == 2)
    assert cluster.asked("patch") == 1
    assert cluster.told("train") == {}
