"""Published devices change into others only when no claim has them, whatever dies or is wiped meanwhile."""

import pytest

from driver.devices.taints import TAINT_CHANGING, TAINT_XID
from tests.clusters import EmbeddedApiServer
from tests.controller import mig_node
from tests.controller.allocated import allocate, end_claim
from tests.controller.mig_node import BALANCED, DYNAMIC, HIDDEN, SHARED, WHOLE, names, offers
from tests.controller.published import GROUP, SLICES, Published, gpus
from tests.eventually import eventually
from tests.gpus import Incident, Offers, Region, Taint

IN_USE = "gpu-0000-1b-00-0-mig-1g-10gb-6"
NOBODY: frozenset[str] = frozenset()
THERE, WANTED = offers(DYNAMIC), offers(BALANCED)
"""What is published in most tests, and what is wanted instead."""


def wants(published: Published, wanted: Offers, held: frozenset[str] = NOBODY) -> None:
    """Have this published."""
    published.publisher.offer(wanted, held, mig_node.inventory().gpus)


@pytest.fixture
def running(published: Published) -> Published:
    """The publisher with partitions and counters published."""
    wants(published, THERE)
    published.start()
    becomes(published, THERE)
    return published


def tainted(published: Published) -> set[str]:
    """The devices that are marked for a change."""
    return {
        device["name"]
        for device in published.devices()
        if TAINT_CHANGING in [taint["key"] for taint in device.get("taints", [])]
    }


def is_published(published: Published, wanted: Offers) -> bool:
    """Whether exactly these devices and counters are published in a complete pool, without a taint."""
    counters = [one["name"] for item in published.slices() for one in item["spec"].get("sharedCounters", [])]
    return (
        published.device_names() == names(wanted.devices)
        and counters == [one.name for one in wanted.counter_sets]
        and published.complete()
        and not tainted(published)
    )


def becomes(published: Published, wanted: Offers) -> None:
    """Wait until that is published and nothing else."""
    published.becomes(lambda: is_published(published, wanted))


def waits_for_the_claim(published: Published) -> None:
    """Wait until the balanced layout is published beside the claimed device, whose place no claim gets."""
    published.becomes(lambda: keeps_the_place_free(published, IN_USE) and tainted(published) == {IN_USE})


def keeps_the_place_free(published: Published, *kept: str) -> bool:
    """Whether the balanced layout is published, and all but the place of the claimed device can be had."""
    wanted, place = names(WANTED.devices), "gpu-0000-1b-00-0-mig-3g-40gb-4"
    return (
        published.device_names() == [*wanted, *kept]
        and published.complete()
        and untainted(published) == {*wanted} - {place}
    )


def untainted(published: Published) -> set[str]:
    """The devices that a new claim may get."""
    return {one["name"] for one in published.devices() if not one.get("taints")}


def test_a_claim_that_slips_in_before_the_taint_keeps_what_it_was_given(running: Published) -> None:
    hung = running.server.fail("update", "/resourceslices", kind="hang", times=1)
    wants(running, WANTED)
    allocate(running.server, "quick", IN_USE)
    hung.release()

    waits_for_the_claim(running)


@pytest.mark.parametrize("writes", range(6))
def test_a_controller_that_dies_after_any_write_is_followed_by_one_that_finishes(
    running: Published, again: Published, writes: int
) -> None:
    running.writer.writes_left = writes
    wants(running, WANTED)
    running.becomes(lambda: running.writer.refused.is_set() or is_published(running, WANTED))
    running.end()

    wants(again, WANTED)
    again.start()

    becomes(again, WANTED)


@pytest.mark.parametrize("writes", range(5))
def test_a_device_in_use_outlives_a_controller_that_dies_after_any_write(
    running: Published, again: Published, writes: int
) -> None:
    allocate(running.server, "train", IN_USE)
    running.writer.writes_left = writes
    wants(running, WANTED)
    running.becomes(lambda: running.writer.refused.is_set() or IN_USE in tainted(running))
    running.end()

    wants(again, WANTED)
    again.start()

    waits_for_the_claim(again)


def test_a_claim_of_what_another_controller_published_and_a_kubelet_wiped_keeps_its_place(
    published: Published,
) -> None:
    """So it is in a rolling update with another configuration: the first controller finds an empty pool."""
    wants(published, WANTED)
    published.start()
    becomes(published, WANTED)
    published.publisher.plugin_serves(False)
    (stored, *_) = published.slices()
    pool = stored["spec"]["pool"]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "node-a", "pool": pool, "devices": [{"name": IN_USE}]}
    published.server.create(SLICES, {**stored, "metadata": {"name": "other"}, "spec": spec})
    allocate(published.server, "train", IN_USE)
    published.server.delete(SLICES)
    published.becomes(lambda: not published.publisher.reflector.snapshot()[0])

    published.publisher.plugin_serves(True)

    published.becomes(lambda: keeps_the_place_free(published))
    end_claim(published.server, "train")
    becomes(published, WANTED)


def test_a_pool_whose_claims_cannot_be_listed_is_published_with_taints_and_not_ready(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.fail("list", "/pods", code=403, times=1)
    wants(published, THERE)
    published.start()

    eventually("it says why", published.publisher.why_not_published, lambda why: "cannot read claims" in why)
    assert tainted(published) == set(names(THERE.devices))
    assert published.publisher.age_seconds() > 0

    becomes(published, THERE)
    eventually("it is ready", published.publisher.why_not_published, lambda why: not why)


_TAINTED = Offers(tuple(gpus(1, taints=(Taint("gpu.nvidia.com/gpu-lost", "x", "NoSchedule"),))), ())


@pytest.mark.parametrize(
    ("gate", "wanted"),
    [
        ("DRAPartitionableDevices", THERE),
        ("DRAConsumableCapacity", offers(WHOLE, SHARED)),
        ("DRADeviceTaints", _TAINTED),
    ],
)
def test_an_api_server_that_drops_fields_gets_nothing_until_it_stores_them(
    server: EmbeddedApiServer, published: Published, gate: str, wanted: Offers
) -> None:
    server.verbs.disabled_gates = frozenset({gate})
    wants(published, wanted)
    published.start()
    eventually("it says why", published.publisher.why_not_published, lambda why: gate in why)
    [event] = eventually("an event", lambda: server.objects("events"))
    assert event["reason"] == "SliceFieldsDropped"
    assert gate in event["message"]
    eventually("nothing is published", lambda: not published.slices())
    published.clock.now += 900
    published.look()
    published.look()
    changes = server.store.changes_after((GROUP, "resourceslices"), 0)
    stored = {one["name"] for change in changes for one in change.item["spec"].get("devices", [])}
    assert stored.isdisjoint(one.name for one in wanted.devices if one.consumes), "without its counters"

    server.verbs.disabled_gates = frozenset()
    published.look()
    published.look()
    assert not published.slices(), "it is asked after a quarter of an hour"
    published.clock.now += 900
    server.fail("create", "/resourceslices", code=503, times=1)
    published.look()

    becomes(published, wanted)
    eventually("it is ready", published.publisher.why_not_published, lambda why: not why)


def test_a_field_that_is_dropped_later_takes_the_devices_away(running: Published) -> None:
    running.server.verbs.disabled_gates = frozenset({"DRADeviceTaints"})

    wants(running, offers(BALANCED, WHOLE))

    running.becomes(lambda: not running.slices())


def test_a_device_that_a_claim_keeps_of_a_hidden_gpu_has_the_taints_of_its_faults(running: Published) -> None:
    hidden = offers(HIDDEN)
    wants(running, hidden, frozenset({IN_USE}))
    running.becomes(lambda: running.device_names() == [IN_USE])
    region = Region(hidden.withheld[0].pci)
    running.publisher.incidents.report(Incident(region, 94))
    running.publisher.verdicts_changed()

    def keys() -> list[str]:
        (kept,) = running.devices()
        return [taint["key"] for taint in kept["taints"]]

    running.becomes(lambda: keys() == [TAINT_XID, TAINT_CHANGING])
