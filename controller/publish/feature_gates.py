"""Says what can be offered to an API server that stores no counters, or no shared devices: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driver.devices.device import Device
from driver.policy.offers import Offers

COUNTER_FIELDS = frozenset({"sharedCounters", "consumesCounters"})
"""What a server without the feature gate DRAPartitionableDevices leaves out of a slice and of its devices."""

SHARING_FIELDS = frozenset({"allowMultipleAllocations"})
"""What a server without the feature gate DRAConsumableCapacity leaves out of a device."""


def storable(offers: Offers, dropped: frozenset[str]) -> Offers:
    """The offers without what means something else where a server drops these fields.

    Without counters a scheduler would hand out a GPU and its partitions at once. So of the forms of a GPU
    that exclude each other one is left that is all of it: the whole GPU, else the GPU for a virtual machine,
    else the first shared one; one that is all of several GPUs is not, where any of them has a form of its
    own. A shared device would go to a single claim that has no share of it, so none is left where sharing is
    not stored.
    """
    if not dropped.isdisjoint(SHARING_FIELDS):
        offers = replace(offers, devices=tuple(one for one in offers.devices if not one.policies))
    if dropped.isdisjoint(COUNTER_FIELDS):
        return offers
    chosen = _one_of_each_gpu([one for one in offers.devices if one.consumed_sets and one.takes_all])
    devices = (
        replace(one, counter_set="", consumes={}, more_consumes={}) if one.consumed_sets else one
        for one in offers.devices
        if not one.consumed_sets or one.name in chosen
    )
    return replace(offers, devices=tuple(devices), counter_sets=())


def _one_of_each_gpu(devices: Sequence[Device]) -> set[str]:
    """The names of the exclusive devices; for a GPU without one, of its first shared device.

    The whole GPU comes before others of its kind. No counter set is taken from twice.
    """
    chosen: set[str] = set()
    taken: set[str] = set()
    for one in sorted(devices, key=lambda device: (len(device.consumed_sets), bool(device.policies))):
        if taken.isdisjoint(one.consumed_sets):
            chosen.add(one.name)
            taken.update(one.consumed_sets)
    return chosen
