"""Works out how a GPU gets from the devices that are published to those that are wanted. Pure.

A scheduler forgets the counters of an allocated device that is no longer published, and a new device could
then lie where the allocated one lies. So while a device that goes away may be allocated, all published
devices of its GPU stay, with a taint that keeps new claims off. When the taint is stored and no claim has
such a device, the wanted devices take their place. All of this can be read from the stored slices, so a
restarted controller goes on at the same point.

If nothing is stored of a GPU, a kubelet may have deleted it, and claims may have devices that no slice shows.
So its devices are published only after the claims were listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driver.devices.device import CounterSet, Device, Taint
from driver.devices.names import unshared_name
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED, TAINT_CHANGING
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers

_CHANGING = Taint(TAINT_CHANGING, "", "NoSchedule")
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A GPU whose published devices should change and may not yet."""

    # Its address. GPUs that a device spans change together, under the lowest address. A device that lies on
    # no GPU has its name here.
    unit: str
    # Whether all its stored devices have the taint.
    tainted: bool
    # The devices that go away or went away, and that claims have, as far as that is known.
    in_the_way: frozenset[str]
    # Whether it is not known what was published of it before.
    appears: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to publish now, and the GPUs that do not have the wanted devices yet."""

    offers: Offers
    changes: tuple[Change, ...]


def next_step(
    wanted: Offers,
    stored: Sequence[Device],
    stored_counters: Sequence[CounterSet],
    allocated: frozenset[str] | None,
    held: frozenset[str],
    *,
    avoided: frozenset[str] = _NOTHING,
    knows_all: bool = True,
    needs_taint: bool = True,
) -> Step:
    """The step from the stored devices of the pool towards ``wanted``.

    ``allocated`` are the allocated devices of the pool, None if the claims were not listed; ``held`` are
    those that the plugin holds. ``avoided`` are allocated devices that are not offered, and for which
    ``wanted`` has taints at their place. ``knows_all`` is false if more may have been published than is
    stored. ``needs_taint`` is false if the API server stores no taints, so that there is none to wait for.

    Partitions that an admin made, and a GPU that the node no longer has, come and go at once, since this
    driver cannot delay that. The same is true of a GPU, shared or not, on which an admin has made partitions.
    But to start or end the sharing of such a partition is this driver's own change.
    """
    units = _Units((*stored, *wanted.devices))
    names = {unit: {one.name for one in devices} for unit, devices in units.group(wanted.devices).items()}
    present = names.keys() | {units.of_gpu(withheld.pci) for withheld in wanted.withheld}
    there = units.group(stored)
    known = frozenset().union((one.name for one in stored), held, *names.values())
    known |= avoided if needs_taint else _NOTHING
    unseen = _unseen(allocated or (), known, units)
    changes = []
    for unit in sorted(there.keys() | names.keys()):
        devices, offered = there.get(unit, []), names.get(unit, set())
        # A GPU that the node no longer has is gone, whatever claims hold.
        here = unit in present or any(not device.regions for device in devices)
        going = _going(devices, offered) if here else frozenset()
        tainted = not needs_taint or all(_is_changing(device) for device in devices)
        in_the_way = (going & (held if allocated is None else held | allocated)) | unseen.get(unit, _NOTHING)
        # Old devices go: not before the taint is stored, the claims were listed, and none has such a device.
        if going and (not tainted or allocated is None or in_the_way):
            changes.append(Change(unit, tainted, in_the_way))
        # New devices come: not before the claims were listed, if one of them may have their place.
        elif (allocated is None or unit in unseen) and (
            not (knows_all and devices) and _may_be_taken(devices, offered)
        ):
            changes.append(Change(unit, tainted=True, in_the_way=in_the_way, appears=True))
    if not changes:
        return Step(wanted, ())
    kept = {
        change.unit: _kept(there.get(change.unit, ()), names.get(change.unit, set())) for change in changes
    }
    return Step(_merged(wanted, kept, stored_counters, units), tuple(changes))


class _Units:
    """What changes together: a GPU, the GPUs that a device spans, or a device that lies on no GPU."""

    def __init__(self, devices: Iterable[Device]) -> None:
        # Each GPU of a joined group, with the lowest address of the group.
        self._first: dict[PciAddress, PciAddress] = {}
        for device in devices:
            firsts = {self._first.get(region.pci, region.pci) for region in device.regions}
            if len(firsts) > 1:
                joined = firsts | {pci for pci, first in self._first.items() if first in firsts}
                self._first.update(dict.fromkeys(joined, min(firsts)))

    def of_gpu(self, pci: PciAddress) -> str:
        """The unit that a GPU belongs to."""
        return str(self._first.get(pci, pci))

    def of(self, device: Device) -> str:
        """The unit that a device belongs to."""
        return device.name if device.pci is None else self.of_gpu(device.pci)

    def group(self, devices: Iterable[Device]) -> dict[str, list[Device]]:
        """The devices of each unit."""
        found: defaultdict[str, list[Device]] = defaultdict(list)
        for device in devices:
            found[self.of(device)].append(device)
        return dict(found)


def _unseen(allocated: Iterable[str], known: frozenset[str], units: _Units) -> dict[str, frozenset[str]]:
    """The allocated devices that are not ``known``, by the unit that they lie on."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in set(allocated) - known:
        parsed = KINDS.parse(name)
        # A partition of an admin that is not known does not exist any more, so it is not in the way.
        if parsed is not None and not parsed.kind.by_admin:
            for unit in {units.of_gpu(region.pci) for region in parsed.regions} or {name}:
                found[unit].add(name)
    return {unit: frozenset(names) for unit, names in found.items()}


def _may_be_taken(devices: Sequence[Device], offered: set[str]) -> bool:
    """Whether a claim that is not known may have the place of a device that is offered now."""
    # The device is new, or a stored taint says that there was such a claim once. A partition of an admin
    # exists, so nothing else can be in its place.
    new = offered - {device.name for device in devices}
    return any(not _by_admin(name) for name in new) or any(map(_lies_over_claim, devices))


def was_settled(stored: Iterable[Device]) -> bool:
    """Whether the controller that published this was waiting for no claim, and kept no place free for one."""
    return not any(_is_changing(device) or _lies_over_claim(device) for device in stored)


def _lies_over_claim(device: Device) -> bool:
    return any((taint.key, taint.value) == (TAINT_BLOCKED, HELD_BY_CLAIM) for taint in device.taints)


def _going(devices: Iterable[Device], wanted: set[str]) -> frozenset[str]:
    """The stored devices of a GPU that go away, and that a claim may still have."""
    going = [one for one in devices if one.name not in wanted and _ours_to_change(one.name, wanted)]
    if going and any(_by_admin(name) for name in wanted):
        going = [one for one in going if not one.takes_all]
    return frozenset(one.name for one in going)


def _ours_to_change(name: str, wanted: set[str]) -> bool:
    """Whether this driver decides when the device goes: not if an admin has removed the partition."""
    return not _by_admin(name) or unshared_name(name) in map(unshared_name, wanted)


def _kept(devices: Iterable[Device], wanted: set[str]) -> tuple[Device, ...]:
    """The stored devices that stay for now: all except partitions that an admin has removed."""
    return tuple(device for device in devices if _ours_to_change(device.name, wanted))


def _is_changing(device: Device) -> bool:
    return any((taint.key, taint.effect) == (TAINT_CHANGING, "NoSchedule") for taint in device.taints)


def _by_admin(name: str) -> bool:
    parsed = KINDS.parse(name)
    return parsed is not None and parsed.kind.by_admin


def _merged(
    wanted: Offers,
    kept: Mapping[str, tuple[Device, ...]],
    stored_counters: Iterable[CounterSet],
    units: _Units,
) -> Offers:
    """What is wanted, with the kept devices instead of the wanted ones of their GPUs."""
    # They come last, and so do not change the order in which a scheduler takes the others.
    health = _health_taints(wanted)
    devices = [device for device in wanted.devices if units.of(device) not in kept]
    devices += (
        replace(device, taints=(*health.get(device.pci, ()), _CHANGING))
        for unit in kept
        for device in kept[unit]
    )
    counters = [one for one in wanted.counter_sets if units.of_gpu(one.pci) not in kept]
    counters += (one for one in stored_counters if units.of_gpu(one.pci) in kept)
    return replace(
        wanted, devices=tuple(devices), counter_sets=tuple(sorted(counters, key=lambda one: one.pci))
    )


def _health_taints(wanted: Offers) -> dict[PciAddress | None, tuple[Taint, ...]]:
    """The present taints of each GPU; the stored ones may be out of date."""
    found: dict[PciAddress | None, tuple[Taint, ...]] = {
        withheld.pci: withheld.taints for withheld in wanted.withheld
    }
    for device in wanted.devices:
        if device.pci is not None:
            found[device.pci] = tuple(taint for taint in device.taints if taint.key != TAINT_BLOCKED)
    return found
