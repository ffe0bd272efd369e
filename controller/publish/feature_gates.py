"""What can be offered to an API server that does not store counters, or shared devices. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driver.devices.device import Device
from driver.policy.offers import Offers

COUNTER_FIELDS = frozenset({"sharedCounters", "consumesCounters"})
"""The fields that a server without the feature gate DRAPartitionableDevices drops silently."""

SHARING_FIELDS = frozenset({"allowMultipleAllocations"})
"""The fields that a server without the feature gate DRAConsumableCapacity drops silently."""


def storable(offers: Offers, dropped: frozenset[str]) -> Offers:
    """The offers without the devices that would mean something else if a server drops these fields.

    Without counters one form of each GPU is left: the whole GPU, else the GPU for a virtual machine, else the
    first shared one. A device that spans GPUs is left only if none of them has a form of its own.
    """
    # Without allowMultipleAllocations a shared device would go to a single claim, which has no share of it.
    if not dropped.isdisjoint(SHARING_FIELDS):
        offers = replace(offers, devices=tuple(one for one in offers.devices if not one.policies))
    if dropped.isdisjoint(COUNTER_FIELDS):
        return offers
    # Without counters a scheduler would hand out a GPU and its partitions at the same time.
    chosen = _one_of_each_gpu([one for one in offers.devices if one.consumed_sets and one.takes_all])
    devices = (
        replace(one, counter_set="", consumes={}, more_consumes={}) if one.consumed_sets else one
        for one in offers.devices
        if not one.consumed_sets or one.name in chosen
    )
    return replace(offers, devices=tuple(devices), counter_sets=())


def _one_of_each_gpu(devices: Sequence[Device]) -> set[str]:
    """The names of the devices that are left: no two of them consume from one counter set."""
    chosen: set[str] = set()
    taken: set[str] = set()
    # First those of a single GPU, and of these first the exclusive ones; the order of the offers otherwise.
    for one in sorted(devices, key=lambda device: (len(device.consumed_sets), bool(device.policies))):
        if taken.isdisjoint(one.consumed_sets):
            chosen.add(one.name)
            taken.update(one.consumed_sets)
    return chosen
