"""Decides at each sync what is published of GPUs whose devices are to change, and looks at the claims once.

The claims of a cluster can be many. So they are listed only when a GPU waits for nothing else: a moment after
its taint was written, at once where nothing is known of what was published of it, and again with back-off
while a device that has to go is still allocated.

A kubelet that starts deletes all slices of its node. What was stored before is remembered, so that a change
that is under way goes on after that. A process that begins with nothing remembers nothing, and has to look.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from controller.publish.feature_gates import storable
from controller.publish.island_names import IslandNames
from controller.publish.recall import recalled
from controller.publish.transition import next_step, was_settled
from driver.errors import ApiError
from driver.kinds.registry import KINDS
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.slices.specs import read_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from controller.publish.transition import Change, Step
    from driver.devices.device import CounterSet, Device
    from driver.kinds.kind import Kinds
    from driver.kube.backoff import Backoff

_log = get_logger(__name__)

T = TypeVar("T", bound="Device | CounterSet")


@dataclass(frozen=True, slots=True)
class Turnover:
    """What to publish now.

    ``again_in_seconds`` is when to ask again when nothing else happens, None for never. ``waits`` is whether
    a GPU waits: only then matters what claims hold. ``follow`` is whether a claim has a device that nobody
    publishes, so that claims have to be followed. ``failure`` is why devices are left out that were never
    published, empty when none is for a failure.
    """

    offers: Offers
    again_in_seconds: float | None
    waits: bool
    follow: bool
    failure: str


class Changeover:
    """Takes GPUs from the devices that are stored to those that are wanted. Used by one thread.

    ``allocated`` lists the devices of the pool that claims were given; it may raise ApiError, and is
    then asked again later. It is first asked ``settle_seconds`` after the taint, again as ``backoff`` says.
    """

    def __init__(
        self,
        pool: str,
        allocated: Callable[[], frozenset[str]],
        settle_seconds: float,
        backoff: Backoff,
        kinds: Kinds = KINDS,
    ) -> None:
        self._pool = pool
        self._allocated = allocated
        self._settle_seconds = settle_seconds
        self._backoff = backoff
        self._kinds = kinds
        self._waiting: frozenset[str] = frozenset()
        self._look_at = 0.0
        self._failure = ""
        self._told: dict[str, tuple[str, ...]] = {}
        self._names = IslandNames()
        self._former = Offers((), ())
        self._knows_all = False

    def next_offers(
        self,
        wanted: Offers,
        held: frozenset[str],
        slices: Sequence[Mapping[str, Any]],
        *,
        heeded: frozenset[str] = frozenset(),
        dropped: frozenset[str] = frozenset(),
    ) -> Turnover:
        """What to publish now, and whether and when to ask again.

        ``slices`` are those that are stored of the driver for the node. ``heeded`` are devices that claims
        have, and that ``wanted`` keeps new claims away from. ``dropped`` are the fields that the API server
        does not store: nothing is offered that needs them, and taints that are not stored are not waited for.
        """
        stored, stored_counters = published(slices, self._pool, self._kinds)
        former = storable(self._former, dropped)
        devices = _with_former(stored, former.devices)
        counters = _with_former(stored_counters, former.counter_sets)
        wanted = self._names.kept(storable(wanted, dropped), stored)
        wanted = recalled(wanted, devices, counters)
        self._knows_all = self._knows_all or (is_whole(slices, self._pool) and was_settled(stored))

        def step_with(allocated: frozenset[str] | None) -> Step:
            return next_step(
                wanted,
                devices,
                counters,
                allocated,
                held,
                heeded=heeded,
                knows_all=self._knows_all,
                needs_taint="taints" not in dropped,
                kinds=self._kinds,
            )

        step = self._looked(step_with(None), step_with)
        self._former = step.offers
        appearing = [change for change in step.changes if change.appears]
        self._knows_all = self._knows_all or not appearing
        self._tell(step.changes)
        return Turnover(
            step.offers,
            self._again_in_seconds(step.changes),
            waits=bool(step.changes),
            follow=any(change.in_the_way for change in appearing),
            failure=self._failure if appearing else "",
        )

    def _looked(self, step: Step, step_with: Callable[[frozenset[str]], Step]) -> Step:
        """The step, or the one after a look at the claims where it is time for that."""
        ready = [change for change in step.changes if change.tainted and not change.in_the_way]
        waiting = frozenset(change.unit for change in ready)
        now = time.monotonic()
        if new := waiting - self._waiting:
            settles = any(change.unit in new and not change.appears for change in ready)
            self._look_at = now + (self._settle_seconds if settles else 0.0)
            self._backoff.reset()
        self._waiting = waiting
        if not waiting or now < self._look_at:
            return step
        allocated = self._look()
        return step if allocated is None else step_with(allocated)

    def _again_in_seconds(self, changes: Iterable[Change]) -> float | None:
        if any(change.unit in self._waiting for change in changes):
            return max(0.0, self._look_at - time.monotonic())
        return self._settle_seconds if any(not change.tainted for change in changes) else None

    def _look(self) -> frozenset[str] | None:
        """The devices that are allocated, None when that cannot be told; sets when to look again."""
        allocated, failure = None, None
        try:
            allocated = self._allocated()
        except ApiError as error:
            failure = error
        self._failure = "" if failure is None else f"claims not listed: {failure}"
        wait_seconds = self._backoff.next_seconds(failure)
        self._look_at = time.monotonic() + wait_seconds
        if failure is not None:
            _log.warning(
                "claims not listed, devices stay as they are",
                error=str(failure),
                again_in_seconds=round(wait_seconds, 2),
            )
        return allocated

    def _tell(self, changes: Iterable[Change]) -> None:
        """Log which GPUs wait for what, when that has changed."""
        now = {change.unit: tuple(sorted(change.in_the_way)) for change in changes}
        if now != self._told:
            self._told = now
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
