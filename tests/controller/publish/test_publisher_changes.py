"""Published devices change into others only when no claim has them, whatever dies or is wiped meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from driver.devices.device import Taint
from driver.devices.taints import TAINT_CHANGING
from tests.controller.allocated import allocate, end_claim
from tests.controller.mig_node import BALANCED, DYNAMIC, SHARED, SMALL, WHOLE, names, offers
from tests.controller.published import SLICES, Published, gpus
from tests.eventually import eventually

if TYPE_CHECKING:
    from driver.policy.offers import Offers
    from envtest.embedded.server import EmbeddedApiServer

IN_USE = "gpu-0000-1b-00-0-mig-1g-10gb-6"
NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def running(published: Published) -> Published:
    """The publisher with partitions and counters published."""
    published.publisher.offer(offers(DYNAMIC))
    published.start()
    becomes(published, offers(DYNAMIC))
    return published


def tainted(published: Published) -> set[str]:
    """The devices that are marked for a change."""
    return {
        device["name"]
        for item in published.slices()
        for device in item["spec"].get("devices", [])
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


def waits(published: Published, count: int) -> None:
    """Wait until so many devices are marked and claims were looked at with that."""
    before = published.server.count("list", "pods")
    published.becomes(
        lambda: (
            len(tainted(published)) == count
            and published.complete()
            and published.server.count("list", "pods") > before
        )
    )


def test_counter_sets_come_in_a_slice_of_their_own_before_the_devices(running: Published) -> None:
    first, second = running.slices()
    assert len(first["spec"]["sharedCounters"]) == 2
    assert "devices" not in first["spec"]
    assert len(second["spec"]["devices"]) == 20


def test_an_unused_gpu_changes_after_one_look_at_the_claims(running: Published) -> None:
    assert running.server.count("list", "pods") == 1, "nothing was published before"

    running.publisher.offer(offers(BALANCED))

    becomes(running, offers(BALANCED))
    assert running.server.count("list", "pods") == 2


def test_back_and_forth_and_up_to_more_slices_every_pool_is_complete_in_the_end(running: Published) -> None:
    for form in (BALANCED, WHOLE, DYNAMIC, SMALL, DYNAMIC, WHOLE, BALANCED):
        running.publisher.offer(offers(form))
        becomes(running, offers(form))


def test_a_gpu_in_use_keeps_its_devices_until_the_claim_ends(running: Published) -> None:
    allocate(running.server, "train", IN_USE)

    running.publisher.offer(offers(BALANCED))

    waits(running, 10)
    assert IN_USE in running.device_names()
    end_claim(running.server, "train")
    becomes(running, offers(BALANCED))


def test_the_other_gpu_does_not_wait(running: Published) -> None:
    allocate(running.server, "train", IN_USE)

    running.publisher.offer(offers(BALANCED))

    second = "gpu-0000-43-00-0"
    wanted = {name for name in names(offers(BALANCED).devices) if name.startswith(second)}
    running.becomes(
        lambda: (
            {name for name in running.device_names() if name.startswith(second)} == wanted
            and running.complete()
        )
    )
    assert len(tainted(running)) == 10


def test_what_the_plugin_holds_is_waited_for_without_a_look(running: Published) -> None:
    held = frozenset({IN_USE, "gpu-0000-43-00-0"})
    running.publisher.offer(offers(BALANCED), held)
    running.becomes(lambda: len(tainted(running)) == 20)
    running.settles()
    assert running.server.count("list", "pods") == 1, "nothing was published before"

    running.publisher.offer(offers(BALANCED), NOBODY)

    becomes(running, offers(BALANCED))


def test_a_claim_that_slips_in_before_the_taint_keeps_what_it_was_given(running: Published) -> None:
    hung = running.server.fail("update", "/resourceslices", kind="hang", times=1)
    running.publisher.offer(offers(BALANCED))
    allocate(running.server, "quick", IN_USE)
    hung.release()

    waits(running, 10)
    assert IN_USE in running.device_names()


def test_a_change_that_is_taken_back_takes_the_taint_away(running: Published) -> None:
    allocate(running.server, "train", IN_USE)
    running.publisher.offer(offers(BALANCED))
    waits(running, 10)

    running.publisher.offer(offers(DYNAMIC))

    becomes(running, offers(DYNAMIC))


def test_claims_that_cannot_be_listed_hold_up_no_other_change(running: Published) -> None:
    running.server.fail("list", "/pods", code=403, times=100)
    running.publisher.offer(offers(BALANCED, WHOLE))
    running.becomes(lambda: running.server.count("list", "pods") > 0)

    running.publisher.offer(offers(DYNAMIC))

    becomes(running, offers(DYNAMIC))


def test_a_controller_that_dies_while_a_gpu_waits_is_followed_by_one_that_waits_on(
    running: Published, again: Published
) -> None:
    allocate(running.server, "train", IN_USE)
    running.publisher.offer(offers(BALANCED))
    waits(running, 10)
    running.end()

    again.publisher.offer(offers(BALANCED))
    again.start()

    waits(again, 10)
    assert IN_USE in again.device_names()
    end_claim(again.server, "train")
    becomes(again, offers(BALANCED))


@pytest.mark.parametrize("writes", range(6))
def test_a_controller_that_dies_after_any_write_is_followed_by_one_that_finishes(
    running: Published, again: Published, writes: int
) -> None:
    running.writer.writes_left = writes
    running.publisher.offer(offers(BALANCED))
    running.becomes(lambda: running.writer.refused.is_set() or is_published(running, offers(BALANCED)))
    running.end()

    again.publisher.offer(offers(BALANCED))
    again.start()

    becomes(again, offers(BALANCED))


@pytest.mark.parametrize("writes", range(5))
def test_a_device_in_use_outlives_a_controller_that_dies_after_any_write(
    running: Published, again: Published, writes: int
) -> None:
    allocate(running.server, "train", IN_USE)
    running.writer.writes_left = writes
    running.publisher.offer(offers(BALANCED))
    running.becomes(lambda: running.writer.refused.is_set() or len(tainted(running)) == 10)
    running.end()

    again.publisher.offer(offers(BALANCED))
    again.start()

    waits(again, 10)
    assert IN_USE in again.device_names()


def test_a_wiped_pool_comes_back_as_it_was_and_a_claim_keeps_its_device(running: Published) -> None:
    allocate(running.server, "train", IN_USE)
    running.publisher.offer(offers(BALANCED))
    waits(running, 10)

    running.server.delete(SLICES)

    waits(running, 10)
    assert IN_USE in running.device_names()
    end_claim(running.server, "train")
    becomes(running, offers(BALANCED))


def test_a_claim_keeps_its_gpu_off_a_pool_that_was_wiped_while_no_controller_ran(
    running: Published, again: Published
) -> None:
    """So it is after a reboot with another configuration, before the claim's pod has started again."""
    allocate(running.server, "train", IN_USE)
    running.end()
    running.server.delete(SLICES)

    again.publisher.offer(offers(BALANCED))
    again.start()

    others = [name for name in names(offers(BALANCED).devices) if name.startswith("gpu-0000-43")]
    again.becomes(lambda: again.device_names() == others)
    end_claim(again.server, "train")
    becomes(again, offers(BALANCED))


def test_a_pool_whose_claims_cannot_be_listed_is_not_ready(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.fail("list", "/pods", code=403, times=1)
    published.publisher.offer(offers(DYNAMIC))
    published.start()

    eventually("it says why", published.publisher.why_not_published, lambda why: "cannot read claims" in why)
    assert published.publisher.age_seconds() > 0

    becomes(published, offers(DYNAMIC))
    eventually("it is ready", published.publisher.why_not_published, lambda why: not why)


def test_an_api_server_that_stores_no_taints_gets_the_new_devices_all_the_same(
    running: Published,
) -> None:
    running.server.verbs.disabled_gates = frozenset({"DRADeviceTaints"})
    allocate(running.server, "train", IN_USE)

    running.publisher.offer(offers(BALANCED, WHOLE))

    running.becomes(
        lambda: (
            running.complete()
            and IN_USE in running.device_names()
            and "gpu-0000-43-00-0-mig-1g-10gb-6" not in running.device_names()
        )
    )


def test_an_api_server_that_stores_no_counters_gets_whole_gpus_only(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.verbs.disabled_gates = frozenset({"DRAPartitionableDevices"})
    published.publisher.offer(offers(DYNAMIC))
    published.start()

    published.becomes(
        lambda: published.device_names() == ["gpu-0000-43-00-0", "gpu-0000-1b-00-0"] and published.complete()
    )
    [event] = eventually("an event", lambda: server.objects("events"))
    assert "DRAPartitionableDevices" in event["message"]
    seen = [
        device["name"]
        for change in server.store.changes_after(("resource.k8s.io", "resourceslices"), 0)
        for device in change.item["spec"].get("devices", [])
    ]
    assert "gpu-0000-1b-00-0-mig-1g-10gb-6" not in seen


def minute(published: Published) -> None:
    """Let a minute pass for the publisher, and have it sync."""
    published.clock.seconds += 60
    published.look()


@pytest.fixture
def gated(server: EmbeddedApiServer, published: Published) -> Published:
    """A publisher whose API server stores no counters."""
    server.verbs.disabled_gates = frozenset({"DRAPartitionableDevices"})
    published.publisher.offer(offers(DYNAMIC))
    published.start()
    published.becomes(lambda: len(published.device_names()) == 2 and published.complete())
    return published


@pytest.mark.parametrize("minutes", [1, 2, 4])
def test_counted_forms_come_once_the_api_server_stores_counters(gated: Published, minutes: int) -> None:
    gated.settles()
    before = gated.slices()
    for _ in range(minutes - 1):
        minute(gated)
    gated.settles()
    assert gated.slices() == before, "the server is asked, and nothing is written"

    gated.server.verbs.disabled_gates = frozenset()
    minute(gated)

    becomes(gated, offers(DYNAMIC))


def test_an_api_server_of_another_version_is_asked_at_once_what_it_stores(gated: Published) -> None:
    for _ in range(8):
        minute(gated)

    gated.server.verbs.disabled_gates = frozenset()
    minute(gated)
    gated.settles()
    assert len(gated.device_names()) == 2, "it is asked seldom by now"
    gated.server.minor = "38"
    minute(gated)

    becomes(gated, offers(DYNAMIC))


def test_a_server_that_cannot_be_asked_is_asked_again(gated: Published) -> None:
    gated.server.verbs.disabled_gates = frozenset()
    gated.server.fail("create", "/resourceslices", code=503, times=1)
    minute(gated)
    gated.settles()
    assert len(gated.device_names()) == 2
    minute(gated)

    becomes(gated, offers(DYNAMIC))


def test_taints_that_were_dropped_are_written_once_the_server_stores_them(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.verbs.disabled_gates = frozenset({"DRADeviceTaints"})
    published.start(gpus(1, taints=(Taint("gpu.nvidia.com/gpu-lost", "x", "NoSchedule"),)))
    published.publishes(1)
    published.settles()

    server.verbs.disabled_gates = frozenset()
    minute(published)

    published.becomes(lambda: published.slices()[0]["spec"]["devices"][0].get("taints"))


def test_an_api_server_that_stores_no_shares_gets_no_shared_devices(
    server: EmbeddedApiServer, published: Published
) -> None:
    server.verbs.disabled_gates = frozenset({"DRAConsumableCapacity"})
    published.publisher.offer(offers(WHOLE, SHARED))
    published.start()

    published.becomes(lambda: published.device_names() == ["gpu-0000-1b-00-0"] and published.complete())
    [event] = eventually("an event", lambda: server.objects("events"))
    assert "DRAConsumableCapacity" in event["message"]
