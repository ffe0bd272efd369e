"""Works out how a GPU gets from the devices that are published to those that are wanted: pure.

A scheduler forgets the counters of an allocated device that is no longer published, and a device of the
new kind could lie where an allocated one of the old kind lies. So while a device that goes away may be
allocated, all that is published of its GPU stays, with a taint that keeps new claims off; once
the taint is there and no claim has such a device, what is wanted takes its place. All of this can be read
from what is stored, so that a restarted controller goes on at the same point.

Where nothing is stored of a GPU, a kubelet may have wiped it, and claims may have devices that no slice
shows. So its devices are published only after the claims were listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from driver.devices.device import CounterSet, Device, Taint
from driver.devices.names import unshared_name
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED, TAINT_CHANGING
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers

_CHANGING = Taint(TAINT_CHANGING, "", "NoSchedule")
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A GPU whose published devices are to change and may not yet.

    ``unit`` is its address; of GPUs that a device spans, the lowest one, since they change together; of a
    device that lies on no GPU, its name. ``tainted`` says whether all of them carry the taint already.
    ``in_the_way`` are the names of those devices that go away or went away, and that a claim has, as far as
    that is known. ``appears`` is whether nothing is known of what was published of it before.
    """

    unit: str
    tainted: bool
    in_the_way: frozenset[str]
    appears: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What to publish now, and the GPUs of which it is not yet what is wanted."""

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
    kinds: Kinds = KINDS,
) -> Step:
    """The step from what is stored of the pool towards ``wanted``.

    ``allocated`` are the allocated devices of the pool, None while the claims were not listed; ``held`` those
    that the plugin holds. ``avoided`` are allocated devices that are not offered, and for which ``wanted``
    has taints where they lie. ``knows_all`` is false where more may have been published of a GPU than is
    stored. ``needs_taint`` is false where the API server stores no taints, so that there is none to wait for.

    Partitions that an admin made, and a GPU that the node no longer has, come and go at once, since this
    driver cannot change them. The same is true of a GPU, shared or not, on which an admin has made
    partitions. Starting or ending the sharing of such a partition is this driver's own change, so it goes
    through taint and switch.
    """
    units = _Units((*stored, *wanted.devices))
    names = {unit: {one.name for one in devices} for unit, devices in units.group(wanted.devices).items()}
    present = names.keys() | {units.of_gpu(withheld.pci) for withheld in wanted.withheld}
    there = units.group(stored)
    known = frozenset().union((one.name for one in stored), held, *names.values())
    known |= avoided if needs_taint else _NOTHING
    unseen = _unseen(allocated or (), known, units, kinds)
    changes = []
    for unit in sorted(there.keys() | names.keys()):
        devices, offered = there.get(unit, []), names.get(unit, set())
        here = unit in present or any(not device.regions for device in devices)
        going = _going(devices, offered, kinds) if here else frozenset()
        tainted = not needs_taint or all(_is_changing(device) for device in devices)
        in_the_way = (going & (held if allocated is None else held | allocated)) | unseen.get(unit, _NOTHING)
        if going and (not tainted or allocated is None or in_the_way):
            changes.append(Change(unit, tainted, in_the_way))
        elif (allocated is None or unit in unseen) and (
            not (knows_all and devices) and _may_be_taken(devices, offered, kinds)
        ):
            changes.append(Change(unit, tainted=True, in_the_way=in_the_way, appears=True))
    if not changes:
        return Step(wanted, ())
    kept = {
        change.unit: _kept(there.get(change.unit, ()), names.get(change.unit, set()), kinds)
        for change in changes
    }
    return Step(_merged(wanted, kept, stored_counters, units), tuple(changes))


class _Units:
    """What changes as one: a GPU, the GPUs that a device spans, or a device that lies on none."""

    def __init__(self, devices: Iterable[Device]) -> None:
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


def _unseen(
    allocated: Iterable[str], known: frozenset[str], units: _Units, kinds: Kinds
) -> dict[str, frozenset[str]]:
    """The devices that claims have and that are not ``known``, by what they lie on.

    An admin's partition that is not known is gone, and is not in the way.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in set(allocated) - known:
        parsed = kinds.parse(name)
        if parsed is not None and not parsed.kind.by_admin:
            for unit in {units.of_gpu(region.pci) for region in parsed.regions} or {name}:
                found[unit].add(name)
    return {unit: frozenset(names) for unit, names in found.items()}


def _may_be_taken(devices: Sequence[Device], offered: set[str], kinds: Kinds) -> bool:
    """Whether an unknown claim may have the place of what is offered of a GPU now.

    It is new, or what is stored says that such a claim was known once. A partition of an admin is there: no
    other can be in its place.
    """
    new = offered - {device.name for device in devices}
    return any(not _by_admin(name, kinds) for name in new) or any(map(_lies_over_claim, devices))


def was_settled(stored: Iterable[Device]) -> bool:
    """Whether the controller that published this waited for no claim, and kept no place free for one."""
    return not any(_is_changing(device) or _lies_over_claim(device) for device in stored)


def _lies_over_claim(device: Device) -> bool:
    return any((taint.key, taint.value) == (TAINT_BLOCKED, HELD_BY_CLAIM) for taint in device.taints)


def _going(devices: Iterable[Device], wanted: set[str], kinds: Kinds) -> frozenset[str]:
    """The stored devices of a GPU that go away and that a claim may still have."""
    there = set(map(unshared_name, wanted))
    going = [one for one in devices if one.name not in wanted and _ours_to_change(one.name, there, kinds)]
    if any(_by_admin(name, kinds) for name in wanted):
        going = [one for one in going if not one.takes_all]
    return frozenset(one.name for one in going)


def _ours_to_change(name: str, there: set[str], kinds: Kinds) -> bool:
    """Whether a device of this name goes away by our will: not when its partition of an admin is gone."""
    return not _by_admin(name, kinds) or unshared_name(name) in there


def _kept(devices: Iterable[Device], wanted: set[str], kinds: Kinds) -> tuple[Device, ...]:
    """The stored devices that stay for now: all except partitions of an admin that are gone."""
    there = set(map(unshared_name, wanted))
    return tuple(device for device in devices if _ours_to_change(device.name, there, kinds))


def _is_changing(device: Device) -> bool:
    return any((taint.key, taint.effect) == (TAINT_CHANGING, "NoSchedule") for taint in device.taints)


def _by_admin(name: str, kinds: Kinds) -> bool:
    parsed = kinds.parse(name)
    return parsed is not None and parsed.kind.by_admin


def _merged(
    wanted: Offers,
    kept: Mapping[str, tuple[Device, ...]],
    stored_counters: Iterable[CounterSet],
    units: _Units,
) -> Offers:
    """What is wanted, with the kept devices in place of everything else of their GPUs.

    They come last: a scheduler takes the others in their order.
    """
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
    """What is wrong with each GPU now, as taints: stored ones may be out of date."""
    found: dict[PciAddress | None, tuple[Taint, ...]] = {
        withheld.pci: withheld.taints for withheld in wanted.withheld
    }
    for device in wanted.devices:
        if device.pci is not None:
            found[device.pci] = tuple(taint for taint in device.taints if taint.key != TAINT_BLOCKED)
    return found
