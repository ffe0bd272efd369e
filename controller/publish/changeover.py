"""Decides at each sync what to publish, so that no claim loses its device unnoticed.

Published is what is wanted. But a device that is not wanted any more may be allocated to a claim. While its
slice is stored it stays, with a taint that keeps new claims away. Every wanted device that overlaps it gets a
taint, also if no slice shows the old device any more: a kubelet that starts deletes all slices, and a
scheduler forgets the counters of a device that is not published.

A change is taint, settle, look, switch: a moment after the taint was stored, the claims of this node's pods
are read, and a device that none of them has goes. If one has it, they are read again with back-off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from controller.observe.blocked import places
from controller.publish.restore_missing import recalled
from driver.devices.device import CounterSet, Device, Taint
from driver.devices.names import unshared_name
from driver.devices.region import Region, overlap
from driver.devices.taints import HELD_BY_CLAIM, TAINT_BLOCKED, TAINT_CHANGING
from driver.errors import ApiError
from driver.hardware.gpu import Gpu
from driver.kinds.registry import KINDS
from driver.kube.backoff import Backoff
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.slices.specs import read_devices

_log = get_logger(__name__)

_CHANGING = Taint(TAINT_CHANGING, "", "NoSchedule")
_TAKEN = Taint(TAINT_BLOCKED, HELD_BY_CLAIM, "NoSchedule")

Place = PciAddress | str
"""A GPU, or the name of a device that lies on none."""

T = TypeVar("T", bound="Device | CounterSet")


@dataclass(frozen=True, slots=True)
class Seen:
    """The input of a sync."""

    # What should be published, with taints where a claim holds something that is not offered.
    wanted: Offers
    # The devices that claims hold by the report of the plugin.
    held: frozenset[str]
    # The stored slices of the driver for the node.
    slices: Sequence[Mapping[str, Any]]
    # The GPUs, which give the size of a partition of which only the name is known.
    gpus: tuple[Gpu, ...] = ()
    # Devices that somebody else has published since the last sync.
    foreign: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Published:
    """What the publisher remembers from one sync to the next; a new process knows nothing.

    Times are of the monotonic clock: from then on a look at the claims shows whether one has the device.
    Before that, a scheduler may still choose it.
    """

    offers: Offers = field(default_factory=lambda: Offers((), ()))
    # The devices that are not wanted and that a claim may have, and those of them that one had when the
    # claims were read last.
    leaving: Mapping[str, float] = field(default_factory=dict)
    allocated: frozenset[str] = frozenset()
    # The places of which it is known what claims may have there, None in a new process; and all others with
    # wanted devices.
    known: frozenset[Place] | None = None
    unknown: Mapping[Place, float] = field(default_factory=dict)
    # The devices and places that wait for a look; its time, and why the last one failed.
    waiting: frozenset[Place] = frozenset()
    look_at: float = 0.0
    look_failure: str = ""

    @property
    def failure(self) -> str:
        """Why devices have a taint although nothing may be wrong; empty if no failure is the reason."""
        return self.look_failure if self.unknown else ""

    def again_in_seconds(self, now: float, settle_seconds: float) -> float | None:
        """When to sync again if nothing else happens; None means never."""
        if not self.waiting:
            return None
        first = self.first_look_at
        return settle_seconds if math.isinf(first) else max(0.0, first - now)

    @property
    def first_look_at(self) -> float:
        """When the claims have to be read."""
        times = {**self.leaving, **self.unknown}
        return max(self.look_at, min((times[name] for name in self.waiting), default=math.inf))


@dataclass(frozen=True, slots=True)
class Changeover:
    """Replaces the stored devices by the wanted ones.

    ``allocated`` finds the pool's devices that are allocated to claims; it may raise ApiError and is then
    called again later. It is first called ``settle_seconds`` after a taint, and again by ``backoff``.
    """

    pool: str
    allocated: Callable[[], frozenset[str]]
    settle_seconds: float
    backoff: Backoff

    def step(self, before: Published, seen: Seen) -> Published:
        """What to publish now, and what is remembered. Reads the claims if it is time."""
        now = time.monotonic()
        scene = _Scene(before, seen, self.pool, now, self.settle_seconds)
        after = scene.published(before)
        # Something else waits, so the claims are read soon again.
        if not after.waiting <= before.waiting:
            self.backoff.reset()
            after = replace(after, look_at=0.0)
        if after.first_look_at <= now:
            after = self._looked(scene, after)
        _log_changes(before, after)
        return after

    def _looked(self, scene: _Scene, after: Published) -> Published:
        """The same after a look at the claims."""
        try:
            allocated = self.allocated()
        except ApiError as error:
            wait_seconds = self.backoff.next_seconds(error)
            _log.warning(
                "cannot read claims, so devices stay as they are",
                error=str(error),
                again_in_seconds=round(wait_seconds, 2),
            )
            return replace(
                after, look_at=time.monotonic() + wait_seconds, look_failure=f"cannot read claims: {error}"
            )
        look_at = time.monotonic() + self.backoff.next_seconds()
        return replace(scene.looked(allocated).published(after), look_at=look_at, look_failure="")


class _Scene:
    """One sync: what is wanted and stored, and what claims may have. Pure."""

    def __init__(self, before: Published, seen: Seen, pool: str, now: float, settle_seconds: float) -> None:
        self.now, self.settled_at = now, now + settle_seconds
        self.held, self.gpus = seen.held, seen.gpus
        self.stored, self.counters = published(seen.slices, pool)
        # A GPU in doubt keeps what was published before a kubelet deleted it.
        former = _with_former(self.stored, before.offers.devices)
        self.wanted = recalled(seen.wanted, former, _with_former(self.counters, before.offers.counter_sets))
        self.names = frozenset(device.name for device in self.wanted.devices)
        self.unshared = frozenset(map(unshared_name, self.names))
        # The GPUs on which an admin has made partitions.
        self.cut = {device.pci for device in self.wanted.devices if _by_admin(device.name)}
        self.here = {place for device in self.wanted.devices for place in _places(device)}
        self.here |= {withheld.pci for withheld in self.wanted.withheld}
        self.going = [device for device in self.stored if self._goes(device.name)]
        self.allocated = before.allocated
        self.leaving = self._leaving(
            {*before.leaving, *seen.foreign, *seen.held, *(device.name for device in before.offers.devices)},
            before.leaving,
        )
        known = before.known
        if known is None:
            known = self._known_from(is_whole(seen.slices, pool))
        there = {place for device in self.stored for place in _places(device)}
        self.known = known & (self.here | there)
        # Where nothing is published, no scheduler can choose anything, and there is nothing to wait for.
        self.unknown = {
            place: before.unknown.get(place, self.settled_at if place in there else now)
            for place in {place for device in self.wanted.devices for place in _places(device)} - self.known
        }

    def _goes(self, name: str) -> bool:
        """Whether the device is not wanted, and it matters that a claim may have it."""
        parsed = KINDS.parse(name)
        if name in self.names or parsed is None:
            return False
        # What an admin does, this driver cannot delay: a partition that is removed, partitions that are made
        # on a whole GPU, a GPU that leaves the node. But it decides about the sharing of such a partition.
        if parsed.kind.by_admin and parsed.unshared not in self.unshared:
            return False
        if parsed.takes_all and not self.cut.isdisjoint(region.pci for region in parsed.regions):
            return False
        return not parsed.regions or any(region.pci in self.here for region in parsed.regions)

    def _leaving(self, names: Iterable[str], before: Mapping[str, float]) -> dict[str, float]:
        """The devices that are not wanted and that a claim may have: of these names, and of the stored."""
        going = {device.name: device for device in self.going}
        leaving: dict[str, float] = {}
        for name in {*filter(self._goes, names), *going}:
            at = before.get(name, math.inf)
            if name in going and not _is_changing(going[name]):
                at = math.inf
            elif math.isinf(at):
                at = self.settled_at if name in going else self.now
            leaving[name] = at
        return leaving

    def _known_from(self, whole: bool) -> frozenset[Place]:
        """The places where the stored slices show that the controller before this one waited for nothing."""
        if not whole:
            return frozenset()
        taken = {device.name for device in self.wanted.devices if _lies_over_claim(device)}
        doubtful = [
            device
            for device in self.stored
            if _is_changing(device) or (_lies_over_claim(device) and device.name not in taken)
        ]
        there = {place for device in self.stored for place in _places(device)}
        return frozenset(there.difference(place for device in doubtful for place in _places(device)))

    def looked(self, allocated: frozenset[str]) -> _Scene:
        """The scene after a look at the claims found these devices of the pool."""
        self.leaving = {name: at for name, at in self.leaving.items() if at > self.now or name in self.held}
        self.leaving |= {name: self.now for name in allocated - self.leaving.keys() if self._goes(name)}
        self.allocated = allocated & self.leaving.keys()
        self.known |= {place for place, at in self.unknown.items() if at <= self.now}
        self.unknown = {place: at for place, at in self.unknown.items() if at > self.now}
        return self

    def published(self, before: Published) -> Published:
        """What to publish now, and what is remembered."""
        kept = [device for device in self.going if device.name in self.leaving]
        allocated = self.allocated & self.leaving.keys()
        return replace(
            before,
            offers=self._offers(kept, allocated - self.held),
            leaving=self.leaving,
            allocated=allocated,
            known=self.known,
            unknown=self.unknown,
            waiting=frozenset(self.leaving.keys() - self.held) | self.unknown.keys(),
        )

    def _offers(self, kept: Sequence[Device], allocated: frozenset[str]) -> Offers:
        """The wanted devices, each with a taint if a claim may have its place, then the kept ones."""
        if not self.leaving and not self.unknown:
            return self.wanted
        taken = places(allocated, self.gpus)
        # Where a claim holds the place, the wanted devices have the taint already.
        doubtful = places(self.leaving.keys() - allocated - self.held, self.gpus)
        present = _taints_of_gpus(self.wanted)
        devices = [self._tainted(device, taken, doubtful) for device in self.wanted.devices]
        devices += (replace(device, taints=(*present.get(device.pci, ()), _CHANGING)) for device in kept)
        return replace(
            self.wanted, devices=tuple(devices), counter_sets=_with_counters(self.wanted, kept, self.counters)
        )

    def _tainted(
        self, device: Device, taken: Sequence[tuple[Region, ...]], doubtful: Sequence[tuple[Region, ...]]
    ) -> Device:
        keys = {taint.key for taint in device.taints}
        taints = device.taints
        if TAINT_BLOCKED not in keys and any(overlap(device.regions, regions) for regions in taken):
            taints = (*taints, _TAKEN)
        if not self.unknown.keys().isdisjoint(_places(device)) or any(
            overlap(device.regions, regions) for regions in doubtful
        ):
            taints = (*taints, _CHANGING)
        return device if taints == device.taints else replace(device, taints=taints)


def _with_counters(
    wanted: Offers, kept: Iterable[Device], stored: Iterable[CounterSet]
) -> tuple[CounterSet, ...]:
    """The wanted counter sets, with the counters that the kept devices consume."""
    used = {name for device in kept for name in device.consumed_sets}
    sets = {counters.name: counters for counters in wanted.counter_sets}
    for counters in stored:
        if counters.name in used:
            now = sets.get(counters.name, counters)
            sets[counters.name] = replace(counters, counters={**counters.counters, **now.counters})
    return tuple(sorted(sets.values(), key=lambda counters: counters.pci))


def _taints_of_gpus(wanted: Offers) -> dict[PciAddress | None, tuple[Taint, ...]]:
    """The present taints of each GPU; the stored ones may be out of date."""
    return {
        device.pci: tuple(
            taint for taint in device.taints if taint.key not in (TAINT_BLOCKED, TAINT_CHANGING)
        )
        for device in wanted.devices
        if device.pci is not None
    }


def _places(device: Device) -> set[Place]:
    return {region.pci for region in device.regions} or {device.name}


def _is_changing(device: Device) -> bool:
    return any((taint.key, taint.effect) == (TAINT_CHANGING, "NoSchedule") for taint in device.taints)


def _lies_over_claim(device: Device) -> bool:
    return any((taint.key, taint.value) == (TAINT_BLOCKED, HELD_BY_CLAIM) for taint in device.taints)


def _by_admin(name: str) -> bool:
    parsed = KINDS.parse(name)
    return parsed is not None and parsed.kind.by_admin


def _log_changes(before: Published, after: Published) -> None:
    """Log which devices are waited for, if that has changed."""
    if after.leaving.keys() != before.leaving.keys():
        _log.info("devices go away when no claim has them", devices=sorted(after.leaving))


def is_whole(slices: Iterable[Mapping[str, Any]], pool: str) -> bool:
    """Whether the pool has all slices of its newest generation, by their resourceSliceCount."""
    pools = [item["spec"]["pool"] for item in slices if item["spec"].get("pool", {}).get("name") == pool]
    generation = max((int(one.get("generation") or 0) for one in pools), default=0)
    counts = [one.get("resourceSliceCount") for one in pools if int(one.get("generation") or 0) == generation]
    return bool(counts) and counts == [len(counts)] * len(counts) and len(counts) == len(pools)


def published(
    slices: Iterable[Mapping[str, Any]], pool: str
) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
    """All stored devices and counter sets of the pool, each name once, in their order.

    Devices whose counter sets are gone are left out, since they cannot be published any more.
    """
    # If a sync was cut off, there are slices of two generations. The newest comes first and wins. What only
    # the older slices have is kept, since it may have been allocated.
    ours = [item for item in slices if item["spec"].get("pool", {}).get("name") == pool]
    if not ours:
        return (), ()
    ours.sort(key=lambda item: str(item["metadata"]["name"]))
    ours.sort(key=lambda item: -int(item["spec"]["pool"].get("generation") or 0))
    devices, counters = read_devices([item["spec"] for item in ours])
    first_devices: dict[str, Device] = {}
    for device in devices:
        first_devices.setdefault(device.name, device)
    first_counters: dict[str, CounterSet] = {}
    for one in counters:
        first_counters.setdefault(one.name, one)
    usable = frozenset(first_counters)
    return (
        tuple(device for device in first_devices.values() if usable.issuperset(device.consumed_sets)),
        tuple(first_counters.values()),
    )


def _with_former(stored: Sequence[T], former: Iterable[T]) -> tuple[T, ...]:
    """What is stored, and what this process published before and a kubelet has deleted since."""
    there = {one.name for one in stored}
    return (*stored, *(one for one in former if one.name not in there))
