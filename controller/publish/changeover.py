"""Decides at each sync what to publish of GPUs whose devices have to change; lists the claims when needed.

A cluster can have many claims. So they are listed only when a GPU waits for nothing else: a moment after its
taint was written, at once where it is not known what was published of it, and again with back-off while a
device that has to go is still allocated.

A kubelet that starts deletes all slices of its node. What was stored before is remembered, so that a change
that is under way goes on after that. A new process remembers nothing, and has to list the claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from controller.publish.feature_gates import storable
from controller.publish.island_names import Islands, with_kept_names
from controller.publish.restore_missing import recalled
from controller.publish.transition import Change, next_step, was_settled
from driver.devices.device import CounterSet, Device
from driver.errors import ApiError
from driver.kinds.kind import Kinds
from driver.kinds.registry import KINDS
from driver.kube.backoff import Backoff
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.slices.specs import TaintTimes, read_devices

_log = get_logger(__name__)

_NOTHING = Offers((), ())

T = TypeVar("T", bound="Device | CounterSet")


@dataclass(frozen=True, slots=True)
class Known:
    """All that publication remembers from one sync to the next; a new process knows nothing.

    ``offers`` is what had to be published last. ``changes`` are the GPUs that are not yet what is wanted:
    while there are none, it does not matter what claims hold. ``knows_all`` says that nothing was published
    before but what is stored or in ``offers``. ``islands`` has the names of groups of GPUs. ``taint_times``
    tells since when devices have their taints.

    ``waiting`` are the GPUs that wait only for a list of the claims. It is made at ``look_at``, by the
    monotonic clock. ``look_failure`` is why the last one failed.

    Claims are watched until ``follow_until``, None for not now. ``has_followed`` says that this was decided
    before. ``written`` are the devices that were written last, with the taints of faults.
    """

    offers: Offers = _NOTHING
    changes: tuple[Change, ...] = ()
    knows_all: bool = False
    islands: Islands = field(default_factory=dict)
    taint_times: TaintTimes = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    look_at: float = 0.0
    look_failure: str = ""
    follow_until: float | None = None
    has_followed: bool = False
    written: tuple[Device, ...] = ()

    @property
    def misses_a_claim(self) -> bool:
        """Whether a claim has a device that is not published, so that claims have to be watched."""
        return any(change.appears and change.in_the_way for change in self.changes)

    @property
    def failure(self) -> str:
        """Why devices are left out that were never published; empty when none is for a failure."""
        return self.look_failure if any(change.appears for change in self.changes) else ""

    def again_in_seconds(self, now: float, settle_seconds: float) -> float | None:
        """When to sync again when nothing else happens, None for never."""
        if any(change.unit in self.waiting for change in self.changes):
            return max(0.0, self.look_at - now)
        return settle_seconds if any(not change.tainted for change in self.changes) else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sync finds: what should be published, what is stored, and what claims have as far as is known.

    ``held`` are the devices that the plugin holds. ``slices`` are those that are stored of the driver for the
    node. ``avoided`` are devices that claims have, and that ``wanted`` keeps new claims away from.
    ``dropped`` are the fields that the API server does not store: nothing is offered that needs them, and
    taints that are not stored are not waited for.
    """

    wanted: Offers
    held: frozenset[str]
    slices: Sequence[Mapping[str, Any]]
    avoided: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Changeover:
    """Takes GPUs from the devices that are stored to those that are wanted.

    ``allocated`` lists the devices of the pool that claims were given; it may raise ApiError, and is
    then asked again later. It is first asked ``settle_seconds`` after the taint, again as ``backoff`` says.
    """

    pool: str
    allocated: Callable[[], frozenset[str]]
    settle_seconds: float
    backoff: Backoff
    kinds: Kinds = KINDS

    def next_known(self, known: Known, seen: Seen) -> Known:
        """What is known after this sync, with what to publish. Lists the claims when it is time."""
        now = time.monotonic()
        after = _stepped(known, seen, None, self.pool, self.kinds)
        after = _timed(known, after, now, self.settle_seconds)
        if not after.waiting <= known.waiting:
            self.backoff.reset()
        if after.waiting and now >= after.look_at:
            after = self._looked(known, seen, after.waiting)
        _tell(known, after)
        return after

    def _looked(self, known: Known, seen: Seen, waiting: frozenset[str]) -> Known:
        """What is known after the claims were listed, and when to list them again."""
        allocated, failure = None, None
        try:
            allocated = self.allocated()
        except ApiError as error:
            failure = error
        wait_seconds = self.backoff.next_seconds(failure)
        if failure is not None:
            _log.warning(
                "claims not listed, devices stay as they are",
                error=str(failure),
                again_in_seconds=round(wait_seconds, 2),
            )
        return replace(
            _stepped(known, seen, allocated, self.pool, self.kinds),
            waiting=waiting,
            look_at=time.monotonic() + wait_seconds,
            look_failure="" if failure is None else f"claims not listed: {failure}",
        )


def _stepped(
    known: Known, seen: Seen, allocated: frozenset[str] | None, pool: str, kinds: Kinds = KINDS
) -> Known:
    """What is known, and what to publish, one step towards what is wanted: pure.

    ``allocated`` are the allocated devices of the pool, None while the claims were not listed.
    """
    stored, stored_counters = published(seen.slices, pool, kinds)
    former = storable(known.offers, seen.dropped)
    devices = _with_former(stored, former.devices)
    counters = _with_former(stored_counters, former.counter_sets)
    wanted, islands = with_kept_names(storable(seen.wanted, seen.dropped), stored, known.islands)
    knows_all = known.knows_all or (is_whole(seen.slices, pool) and was_settled(stored))
    step = next_step(
        recalled(wanted, devices, counters),
        devices,
        counters,
        allocated,
        seen.held,
        avoided=seen.avoided,
        knows_all=knows_all,
        needs_taint="taints" not in seen.dropped,
        kinds=kinds,
    )
    return replace(
        known,
        offers=step.offers,
        changes=step.changes,
        knows_all=knows_all or not any(change.appears for change in step.changes),
        islands=islands,
    )


def _timed(before: Known, after: Known, now: float, settle_seconds: float) -> Known:
    """The same with the GPUs that wait for a list of the claims, and its time where one began to wait."""
    ready = [change for change in after.changes if change.tainted and not change.in_the_way]
    waiting, look_at = frozenset(change.unit for change in ready), before.look_at
    if new := waiting - before.waiting:
        settles = any(change.unit in new and not change.appears for change in ready)
        look_at = now + (settle_seconds if settles else 0.0)
    return replace(after, waiting=waiting, look_at=look_at)


def _tell(before: Known, after: Known) -> None:
    """Log which GPUs wait for what, when that has changed."""
    then, now = (
        {change.unit: tuple(sorted(change.in_the_way)) for change in known.changes}
        for known in (before, after)
    )
    if now != then:
        _log.info("GPUs whose devices are about to change, with those in the way", gpus=now)


def is_whole(slices: Iterable[Mapping[str, Any]], pool: str) -> bool:
    """Whether all slices of the pool are there that its newest one speaks of (ResourcePool)."""
    pools = [item["spec"]["pool"] for item in slices if item["spec"].get("pool", {}).get("name") == pool]
    generation = max((int(one.get("generation") or 0) for one in pools), default=0)
    counts = [one.get("resourceSliceCount") for one in pools if int(one.get("generation") or 0) == generation]
    return bool(counts) and counts == [len(counts)] * len(counts)


def published(
    slices: Iterable[Mapping[str, Any]], pool: str, kinds: Kinds = KINDS
) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
    """All devices and counter sets that are stored of the pool, each name once, in their order.

    Where a write was cut off, slices of more than one generation are there; the newest counts, and what
    only the older ones have is there as well, since it may have been allocated. Devices whose counters
    are gone cannot be published any more.
    """
    ours = [item for item in slices if item["spec"].get("pool", {}).get("name") == pool]
    ours.sort(key=lambda item: str(item["metadata"]["name"]))
    ours.sort(key=lambda item: -int(item["spec"]["pool"].get("generation") or 0))
    devices, counters = read_devices([item["spec"] for item in ours], kinds)
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
    """What is stored, and what this process published that a kubelet has wiped since."""
    there = {one.name for one in stored}
    return (*stored, *(one for one in former if one.name not in there))


def followed(known: Known, seen: Seen, seconds: float, now: float, server_time: datetime) -> Known:
    """The same with how long to watch the claims from now on: an allocation may come late.

    A scheduler chooses a device, and writes that into the claim only after its plugins have had their turn:
    one may wait ten minutes for a volume, or a quarter of an hour for a permit. The device may have been
    withdrawn by then, and its counters forgotten. Such an allocation has to block what lies there now.

    An allocation may still come for ``seconds`` after devices were withdrawn; the write that follows
    withdraws them. The watch also goes on while a claim has a device that is no longer published and that the
    plugin does not hold yet. The first time, the age of what is stored decides, by the API server's time: the
    previous controller may have withdrawn devices just now.
    """
    there = {device["name"] for item in seen.slices for device in item["spec"].get("devices") or []}
    offered = {one.name for one in known.offers.devices}
    until = known.follow_until
    if not known.has_followed:
        age = _age(seen.slices, server_time)
        until = None if age is None or age >= seconds else now + seconds - age
    if known.misses_a_claim or not there <= offered:
        until = now + seconds
    if until is not None and now >= until and seen.avoided <= (offered | seen.held):
        until = None
    return replace(known, follow_until=until, has_followed=True)


def _age(stored: Iterable[Mapping[str, Any]], server_time: datetime) -> float | None:
    """Seconds since any of the slices was written last, None where there is none."""
    times = [time for item in stored for time in _written(item["metadata"])]
    return max(0.0, (server_time - max(times)).total_seconds()) if times else None


def _written(metadata: Mapping[str, Any]) -> Iterable[datetime]:
    """When the object was made, and when each of its writers wrote it last (ObjectMeta, managedFields)."""
    writes = [{"time": metadata.get("creationTimestamp")}, *(metadata.get("managedFields") or [])]
    for write in writes:
        try:
            yield datetime.fromisoformat(str(write.get("time")))
        except ValueError:
            continue
