"""A controller that starts where NVML, or a GPU, tells nothing keeps what is published, with a taint."""

from __future__ import annotations

from driver.devices.device import Taint
from driver.policy.offers import Doubt, Offers
from tests.controller.published import Published, gpus

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
