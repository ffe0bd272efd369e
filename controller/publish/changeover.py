"""Decides at each sync what to publish of GPUs whose devices have to change; reads claims when needed.

A kubelet that starts deletes all slices of its node. What was stored before is remembered, so that a change
that has begun goes on after that. A new process remembers nothing and has to read claims.
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
from driver.kube.backoff import Backoff
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.slices.specs import TaintTimes, read_devices

_log = get_logger(__name__)

_NOTHING = Offers((), ())

T = TypeVar("T", bound="Device | CounterSet")


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that the publisher remembers from one sync to the next; a new process knows nothing."""

    # What had to be published last.
    offers: Offers = _NOTHING
    # The GPUs that do not have the wanted devices yet. Without any, it does not matter what claims hold.
    changes: tuple[Change, ...] = ()
    # Whether it is certain that only what is stored or in ``offers`` was published before.
    knows_all: bool = False
    # The names of groups of GPUs, and timeAdded of the devices' taints.
    islands: Islands = field(default_factory=dict)
    taint_times: TaintTimes = field(default_factory=dict)
    # The GPUs that only wait for a list of the claims, when it is made (monotonic clock), and why the last
    # one failed.
    waiting: frozenset[str] = frozenset()
    list_at: float = 0.0
    list_failure: str = ""
    # Until when claims are watched, None if they are not; and whether this was decided before.
    follow_until: float | None = None
    has_followed: bool = False
    # The devices that were written last, with the taints of faults.
    written: tuple[Device, ...] = ()

    @property
    def misses_a_claim(self) -> bool:
        """Whether a claim has a device that is not published, which means that claims must be watched."""
        return any(change.appears and change.in_the_way for change in self.changes)

    @property
    def failure(self) -> str:
        """Why devices that were never published are left out; empty if no failure is the reason."""
        return self.list_failure if any(change.appears for change in self.changes) else ""

    def again_in_seconds(self, now: float, settle_seconds: float) -> float | None:
        """When to sync again if nothing else happens; None means never."""
        if any(change.unit in self.waiting for change in self.changes):
            return max(0.0, self.list_at - now)
        return settle_seconds if any(not change.tainted for change in self.changes) else None


@dataclass(frozen=True, slots=True)
class Seen:
    """The input of a sync."""

    # What should be published.
    wanted: Offers
    # The devices that claims hold by the report of the plugin.
    held: frozenset[str]
    # The stored slices of the driver for the node.
    slices: Sequence[Mapping[str, Any]]
    # Allocated devices; ``wanted`` has taints that keep new claims from their place.
    avoided: frozenset[str] = frozenset()
    # The fields that the API server does not store. Nothing is offered that needs them, and a taint that is
    # not stored is not waited for.
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Changeover:
    """Replaces the stored devices of GPUs by the wanted ones.

    ``allocated`` finds the pool's devices that are allocated to claims; it may raise ApiError and is then
    called again later. It is first called ``settle_seconds`` after the taint, and again by ``backoff``.
    """

    # Claims are read from the API server, so only for a GPU that waits for nothing else: a moment
    # after its taint was written, at once if it is not known what was published of it, and again with
    # back-off while a device that has to go is still allocated.

    pool: str
    allocated: Callable[[], frozenset[str]]
    settle_seconds: float
    backoff: Backoff

    def next_known(self, known: Known, seen: Seen) -> Known:
        """What is known after this sync, with what to publish. Lists the claims if it is time."""
        now = time.monotonic()
        # First without the claims: most syncs change nothing that they could decide.
        after = _stepped(known, seen, None, self.pool)
        after = _timed(known, after, now, self.settle_seconds)
        # Another GPU waits, so the claims are listed soon again.
        if not after.waiting <= known.waiting:
            self.backoff.reset()
        if after.waiting and now >= after.list_at:
            after = self._listed(known, seen, after.waiting)
        _log_changes(known, after)
        return after

    def _listed(self, known: Known, seen: Seen, waiting: frozenset[str]) -> Known:
        """What is known after the claims were listed, and when to list them again."""
        allocated, failure = None, None
        try:
            allocated = self.allocated()
        except ApiError as error:
            failure = error
        wait_seconds = self.backoff.next_seconds(failure)
        if failure is not None:
            _log.warning(
                "cannot read claims, so devices stay as they are",
                error=str(failure),
                again_in_seconds=round(wait_seconds, 2),
            )
        return replace(
            _stepped(known, seen, allocated, self.pool),
            waiting=waiting,
            list_at=time.monotonic() + wait_seconds,
            list_failure="" if failure is None else f"cannot read claims: {failure}",
        )


def _stepped(known: Known, seen: Seen, allocated: frozenset[str] | None, pool: str) -> Known:
    """What is known and what to publish after one step towards what is wanted. Pure.

    ``allocated`` are the allocated devices of the pool, None if the claims were not listed.
    """
    stored, stored_counters = published(seen.slices, pool)
    former, wanted = known.offers, seen.wanted
    if seen.dropped:
        former, wanted = storable(former, seen.dropped), storable(wanted, seen.dropped)
    devices = _with_former(stored, former.devices)
    counters = _with_former(stored_counters, former.counter_sets)
    wanted, islands = with_kept_names(wanted, stored, known.islands)
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
    )
    return replace(
        known,
        offers=step.offers,
        changes=step.changes,
        knows_all=knows_all or not any(change.appears for change in step.changes),
        islands=islands,
    )


def _timed(before: Known, after: Known, now: float, settle_seconds: float) -> Known:
    """``after`` with the GPUs that wait for a list of the claims, and its time if one has begun to wait."""
    ready = [change for change in after.changes if change.tainted and not change.in_the_way]
    waiting, list_at = frozenset(change.unit for change in ready), before.list_at
    if new := waiting - before.waiting:
        # Schedulers that have not seen the taint yet may still write an allocation. Where nothing is
        # published, no scheduler can.
        settles = any(change.unit in new and not change.appears for change in ready)
        list_at = now + (settle_seconds if settles else 0.0)
    return replace(after, waiting=waiting, list_at=list_at)


def _log_changes(before: Known, after: Known) -> None:
    """Log which GPUs wait for which devices, if that has changed."""
    then, now = (
        {change.unit: tuple(sorted(change.in_the_way)) for change in known.changes}
        for known in (before, after)
    )
    if now != then:
        _log.info("devices of GPUs will change when the named devices are free", gpus=now)


def is_whole(slices: Iterable[Mapping[str, Any]], pool: str) -> bool:
    """Whether the pool has all slices of its newest generation, by their resourceSliceCount."""
    pools = [item["spec"]["pool"] for item in slices if item["spec"].get("pool", {}).get("name") == pool]
    generation = max((int(one.get("generation") or 0) for one in pools), default=0)
    counts = [one.get("resourceSliceCount") for one in pools if int(one.get("generation") or 0) == generation]
    return bool(counts) and counts == [len(counts)] * len(counts)


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


def followed(known: Known, seen: Seen, seconds: float, now: float, server_time: datetime) -> Known:
    """``known`` with how long to watch the claims from now on, because an allocation may come late.

    A scheduler chooses a device, and writes that into the claim only after its plugins have had their turn:
    one may wait ten minutes for a volume, or a quarter of an hour for a permit. By then the device may be
    withdrawn. Such an allocation has to block what lies there now, so claims are watched for ``seconds``
    after devices were withdrawn.
    """
    there = {device["name"] for item in seen.slices for device in item["spec"].get("devices") or []}
    offered = {one.name for one in known.offers.devices}
    until = known.follow_until
    # After a start the age of the stored slices decides: the previous controller may have withdrawn devices
    # just before. By the API server's clock, which also set the times in the slices.
    if not known.has_followed:
        age = _age(seen.slices, server_time)
        until = None if age is None or age >= seconds else now + seconds - age
    # The write that follows this withdraws the devices that are stored and not offered.
    if known.misses_a_claim or not there <= offered:
        until = now + seconds
    # Not yet over while a claim has an unpublished device that the plugin does not hold yet.
    if until is not None and now >= until and seen.avoided <= (offered | seen.held):
        until = None
    return replace(known, follow_until=until, has_followed=True)


def _age(stored: Iterable[Mapping[str, Any]], server_time: datetime) -> float | None:
    """Seconds since the last write of any slice; None if there is none."""
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
