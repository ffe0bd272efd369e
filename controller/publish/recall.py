"""Fills in what a look at the node could not tell from what its slices say already: pure.

A controller that starts while a GPU is lost, hangs or fails knows nothing of it. What is published of that
GPU may be allocated, and comes back as it was in most cases. So it stays, with a taint, until it is known
what the GPU offers, or the GPU has left the bus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from driver.devices.device import CounterSet, Device, Taint
    from driver.nvml.pci_address import PciAddress
    from driver.policy.offers import Offers


def recalled(wanted: Offers, stored: Sequence[Device], stored_counters: Iterable[CounterSet]) -> Offers:
    """The offers, with what is stored of the GPUs in doubt.

    Those in doubt as a whole keep their devices and counters; they stand last, as the order of the others is
    that in which a scheduler shall take them. Others of which something was never told keep the attributes
    and capacities that it would have told, as long as it is the same board.
    """
    if not wanted.doubts:
        return wanted
    doubts = _Doubts(wanted)
    names = {device.name for device in wanted.devices}
    kept = [
        replace(device, taints=taints)
        for device in stored
        if device.name not in names and (taints := doubts.taints(device)) is not None
    ]
    by_name = {device.name: device for device in stored}
    devices = (_completed(device, by_name.get(device.name), doubts) for device in wanted.devices)
    used = {device.counter_set for device in kept} - {one.name for one in wanted.counter_sets}
    counters = (*wanted.counter_sets, *(one for one in stored_counters if one.name in used))
    return replace(
        wanted,
        devices=(*devices, *kept),
        counter_sets=tuple(sorted(counters, key=lambda one: one.pci)) if used else wanted.counter_sets,
    )


class _Doubts:
    """What is in doubt, by GPU."""

    def __init__(self, wanted: Offers) -> None:
        self._whole = {doubt.pci: doubt.taints for doubt in wanted.doubts if doubt.whole}
        self._partly = {doubt.pci for doubt in wanted.doubts if not doubt.whole}
        self._read = {region.pci for device in wanted.devices for region in device.regions}
        self._read |= {withheld.gpu.pci for withheld in wanted.withheld} - self._whole.keys()

    def taints(self, device: Device) -> tuple[Taint, ...] | None:
        """The taints of a stored device that stays; None for one that does not.

        One that spans GPUs stays only if all of them are in doubt: else it goes as others do.
        """
        found = [self._of(region.pci) for region in device.regions]
        if not found or None in found:
            return None
        return tuple(dict.fromkeys(taint for taints in found for taint in taints or ()))

    def _of(self, pci: PciAddress) -> tuple[Taint, ...] | None:
        if pci in self._whole:
            return self._whole[pci]
        return None if pci in self._read else self._whole.get(None)

    def is_partly(self, device: Device) -> bool:
        """Whether something of the GPU was never told that its devices would say."""
        return device.pci in self._partly


def _completed(device: Device, stored: Device | None, doubts: _Doubts) -> Device:
    if stored is None or not doubts.is_partly(device):
        return device
    if any(device.attributes.get(key) != stored.attributes.get(key) for key in ("uuid", "parentUUID")):
        return device
    return replace(
        device,
        attributes=dict(sorted({**stored.attributes, **device.attributes}.items())),
        capacity={**stored.capacity, **device.capacity},
    )
