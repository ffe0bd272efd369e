"""Says what can be offered to an API server that stores no counters: pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driver.offers import Offers

COUNTER_FIELDS = frozenset({"sharedCounters", "consumesCounters"})
"""What such a server leaves out of a slice and of its devices (feature gate DRAPartitionableDevices)."""


def without_counters(offers: Offers) -> Offers:
    """The offers without counters: of devices that exclude each other by them only the whole GPU is left.

    Without counters a scheduler would hand out a GPU and its partitions at once.
    """
    devices = (
        replace(device, counter_set="", consumes={}) if device.counter_set else device
        for device in offers.devices
        if not device.counter_set or device.span is None
    )
    return replace(offers, devices=tuple(devices), counter_sets=())
