"""A controller that starts where NVML, or a GPU, tells nothing keeps what is published, with a taint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.publish.publisher import Wanted
from driver.devices.device import Taint
from driver.policy.offers import Doubt, Offers
from tests.controller.published import Published, gpus

if TYPE_CHECKING:
    pass

HUNG = Taint("gpu.nvidia.com/unresponsive", "nvmlDeviceGetCount_v2", "NoSchedule")
BLIND = Offers((), (), doubts=(Doubt(None, whole=True, taints=(HUNG,)),))


def tainted(published: Published) -> set[str]:
    return {
        device["name"]
        for item in published.slices()
        for device in item["spec"].get("devices", [])
        if [taint["key"] for taint in device.get("taints", [])] == [HUNG.key]
    }


def test_what_is_published_stays_with_a_taint_until_the_node_tells_again(
    published: Published, again: Published
) -> None:
    published.start(gpus(3))
    published.publishes(3)
    names = published.device_names()
    published.publisher.stop()

    again.publisher.offer(BLIND)
    again.start()
    again.becomes(lambda: tainted(again) == set(names))
    assert again.device_names() == names

    again.offer(gpus(3))
    again.becomes(lambda: tainted(again) == set())
    assert again.device_names() == names


def test_where_nothing_is_published_nothing_is_written_before_something_is_known(
    published: Published,
) -> None:
    published.publisher._sync(Wanted(BLIND, frozenset(), ()))  # noqa: SLF001 - one sync, without waiting for what never comes
    assert published.writes() == 0


def test_one_gpu_in_doubt_stays_beside_those_that_are_known(published: Published, again: Published) -> None:
    published.start(gpus(3))
    published.publishes(3)
    published.publisher.stop()
    first, *others = gpus(3)

    again.publisher.offer(Offers(tuple(others), (), doubts=(Doubt(first.pci, whole=True, taints=(HUNG,)),)))
    again.start()

    again.becomes(lambda: tainted(again) == {first.name})
    assert sorted(again.device_names()) == sorted(device.name for device in gpus(3))
