"""Fills in what the last check of the node could not read, from the node's stored slices: pure.

A controller that starts while a GPU is lost, hangs or fails knows nothing of it, and no controller knows
more than the address of a GPU that a virtual machine has. What is published of that GPU may be allocated, and
mostly comes back as it was. So it stays, with a taint where something is wrong, until it is known what the
GPU offers, or the GPU has left the bus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from driver.devices.device import AttributeValue, CounterSet, Device, Taint
from driver.devices.memory_limits import LIMITS_WITHHELD, MEMORY_LIMITS
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers


def recalled(wanted: Offers, stored: Sequence[Device], stored_counters: Iterable[CounterSet]) -> Offers:
    """The offers, with what is stored of the GPUs in doubt.

    GPUs in doubt as a whole keep their devices and counters, each device behind the same device as now, so
    that the order stays when a GPU goes to a virtual machine and comes back. GPUs of which NVML did not
    answer some calls keep the attributes and capacities that those calls decide, as long as it is the same
    board. While a GPU is away, all keep what it would change.
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
    merged = _in_stored_order(devices, kept, stored)
    used = {name for device in merged for name in device.consumed_sets}
    counters = {one.name: one for one in wanted.counter_sets}
    counters |= {one.name: one for one in stored_counters if one.name not in counters or doubts.keeps(one)}
    sets = sorted((one for one in counters.values() if one.name in used), key=lambda one: one.pci)
    return replace(wanted, devices=merged, counter_sets=tuple(sets))


def _in_stored_order(
    devices: Sequence[Device], kept: Sequence[Device], stored: Sequence[Device]
) -> tuple[Device, ...]:
    """The devices, and each kept device behind the nearest one before it in the stored order."""
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
"""What a GPU says of itself and its neighbors: it is another when one of them leaves the NVIDIA driver."""


class _Doubts:
    """What is in doubt, by GPU."""

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
        """Whether a wanted device is there only in case that nothing is stored of a GPU in doubt."""
        return any(region.pci in self._whole and region.pci in self._published for region in device.regions)

    def keeps(self, counters: CounterSet) -> bool:
        """Whether a stored counter set is that of a GPU whose stored devices stay."""
        return counters.pci in self._whole and counters.pci in self._published

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
        """Whether NVML did not tell something of the GPU that its devices publish."""
        return device.pci in self._partly

    def recallable(self, stored: Device) -> dict[str, AttributeValue]:
        """The stored attributes that replace those that NVML did not tell of the GPU.

        A promise about its memory is kept only where NVML could not be asked: otherwise it ended, with the
        NVIDIA driver or by the node configuration.
        """
        if stored.pci in self._limits:
            return dict(stored.attributes)
        return {name: value for name, value in stored.attributes.items() if name not in _LIMITS}


def _completed(device: Device, stored: Device | None, doubts: _Doubts) -> Device:
    if stored is None or not (doubts.is_partly(device) or doubts.is_any_away):
        return device
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
