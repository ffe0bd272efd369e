"""Fills in what the last check of the node could not read, from the node's stored slices. Pure.

A controller that starts while a GPU is lost, hangs or fails knows nothing about it, and of a GPU that a
virtual machine has, no controller knows more than the address. The published devices of that GPU may be
allocated, and mostly they come back unchanged. So they stay, with a taint if something is wrong, until it is
known what the GPU offers, or until the GPU has left the bus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from driver.devices.device import AttributeValue, CounterSet, Device, Taint
from driver.devices.memory_limits import LIMITS_WITHHELD, MEMORY_LIMITS
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers


def recalled(wanted: Offers, stored: Sequence[Device], stored_counters: Iterable[CounterSet]) -> Offers:
    """The offers, with the stored devices of GPUs in doubt.

    * GPUs in doubt as a whole keep their devices and counters.
    * GPUs of which some NVML calls failed keep the attributes and capacities that those calls decide, if it
      is still the same board.
    * While a GPU is away, its neighbours keep the attributes that it would change.
    """
    if not wanted.doubts:
        return wanted
    doubts = _Doubts(wanted, stored)
    fresh = [device for device in wanted.devices if not doubts.stands_in(device)]
    names = {device.name for device in fresh}
    kept = [
        replace(device, taints=taints)
        for device in stored
        if device.name not in names and (taints := doubts.taints(device)) is not None
    ]
    by_name = {device.name: device for device in stored}
    devices = [_completed(device, by_name.get(device.name), doubts) for device in fresh]
    # The order stays when a GPU goes to a virtual machine and comes back: it decides what schedulers take
    # first, and a moved device would mean that slices are written.
    merged = _in_stored_order(devices, kept, stored)
    used = {name for device in merged for name in device.consumed_sets}
    counters = {one.name: one for one in wanted.counter_sets}
    counters |= {one.name: one for one in stored_counters if one.name not in counters or doubts.keeps(one)}
    sets = sorted((one for one in counters.values() if one.name in used), key=lambda one: one.pci)
    merged = tuple(doubts.counted(device, sets) for device in merged)
    return replace(wanted, devices=merged, counter_sets=tuple(sets))


def _in_stored_order(
    devices: Sequence[Device], kept: Sequence[Device], stored: Sequence[Device]
) -> tuple[Device, ...]:
    """The devices, with each kept device behind its nearest predecessor in the stored order."""
    there = {device.name for device in (*devices, *kept)}
    staying = {device.name: device for device in kept}
    behind: dict[str, list[Device]] = {}
    last = ""
    for device in stored:
        if device.name in staying:
            behind.setdefault(last, []).append(staying[device.name])
        elif device.name in there:
            last = device.name
    merged = list(behind.get("", ()))
    for device in devices:
        merged += [device, *behind.get(device.name, ())]
    return tuple(merged)


_LIMITS = frozenset({MEMORY_LIMITS, LIMITS_WITHHELD})
_OF_NEIGHBORS = frozenset(
    {"index", "nvlinkDomain", "nvlinkMesh", "nvlinkPeers", "nvlinkPeerCount", "nvlinkPeerLinks"}
)
"""The attributes about a GPU's neighbours, and its index; they change when a GPU leaves the NVIDIA driver."""


class _Doubts:
    """The doubts, by GPU."""

    def __init__(self, wanted: Offers, stored: Sequence[Device]) -> None:
        self._whole = {doubt.pci: doubt.taints for doubt in wanted.doubts if doubt.whole}
        self._partly = {doubt.pci for doubt in wanted.doubts if not doubt.whole}
        self._read = {region.pci for device in wanted.devices for region in device.regions}
        self._read |= {withheld.pci for withheld in wanted.withheld}
        self._read -= self._whole.keys()
        self._published = {region.pci for device in stored for region in device.regions}
        self._limits = {doubt.pci for doubt in wanted.doubts if doubt.limits}
        self.is_any_away = any(doubt.away for doubt in wanted.doubts)

    def stands_in(self, device: Device) -> bool:
        """Whether the wanted device is replaced by the stored devices of a GPU in doubt."""
        return any(region.pci in self._whole and region.pci in self._published for region in device.regions)

    def keeps(self, counters: CounterSet) -> bool:
        """Whether the stored counter set belongs to a GPU whose stored devices stay."""
        return counters.pci in self._whole and counters.pci in self._published

    def counted(self, device: Device, sets: Sequence[CounterSet]) -> Device:
        """The device with the counters of its GPU, if it is a stored one that takes all of it."""
        # A look that was faster than the plugin has published a GPU that a virtual machine took as one that
        # has no other form. Those that are still there would be given to somebody else.
        if device.counter_set or not self.stands_in(device):
            return device
        name, of_gpu = KINDS.parse(device.name), {one.pci: one for one in sets}
        if name is None or not name.takes_all:
            return device
        return device.consuming_all([of_gpu[one.pci] for one in device.regions if one.pci in of_gpu])

    def taints(self, device: Device) -> tuple[Taint, ...] | None:
        """The taints of a stored device that stays; None if it does not stay."""
        # A device that spans GPUs stays only if all of them are in doubt.
        found = [self._of(region.pci) for region in device.regions]
        if not found or None in found:
            return None
        return tuple(dict.fromkeys(taint for taints in found for taint in taints or ()))

    def _of(self, pci: PciAddress) -> tuple[Taint, ...] | None:
        if pci in self._whole:
            return self._whole[pci]
        return None if pci in self._read else self._whole.get(None)

    def is_partly(self, device: Device) -> bool:
        """Whether some published value of the GPU could not be read."""
        return device.pci in self._partly

    def recallable(self, stored: Device) -> dict[str, AttributeValue]:
        """The stored attributes that may take the place of those that could not be read."""
        # The promise of memory limits is kept only if NVML could not be asked about them. Otherwise it ended,
        # with another NVIDIA driver or by the node configuration.
        if stored.pci in self._limits:
            return dict(stored.attributes)
        return {name: value for name, value in stored.attributes.items() if name not in _LIMITS}


def _completed(device: Device, stored: Device | None, doubts: _Doubts) -> Device:
    if stored is None or not (doubts.is_partly(device) or doubts.is_any_away):
        return device
    # Another UUID at the same address is another board.
    if any(device.attributes.get(key) != stored.attributes.get(key) for key in ("uuid", "parentUUID")):
        return device
    if doubts.is_any_away:
        kept = {name: value for name, value in stored.attributes.items() if name in _OF_NEIGHBORS}
        others = {name: value for name, value in device.attributes.items() if name not in _OF_NEIGHBORS}
        device = replace(device, attributes=dict(sorted({**others, **kept}.items())))
    if not doubts.is_partly(device):
        return device
    return replace(
        device,
        attributes=dict(sorted({**doubts.recallable(stored), **device.attributes}.items())),
        capacity={**stored.capacity, **device.capacity},
    )
