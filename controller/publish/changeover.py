"""Decides at each sync what is published of GPUs whose devices are to change, and looks at the claims once.

The claims of a cluster can be many. So they are listed only when a GPU waits for nothing else, a moment after
its taint was written, and again with back-off while one of its devices is still allocated.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from controller.publish.island_names import IslandNames
from controller.publish.recall import recalled
from controller.publish.transition import next_step
from driver.errors import ApiError
from driver.kinds.registry import KINDS
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.slices.specs import read_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controller.publish.transition import Change, Step
    from driver.devices.device import CounterSet, Device
    from driver.kinds.kind import Kinds
    from driver.kube.backoff import Backoff

_log = get_logger(__name__)


class Changeover:
    """Takes GPUs from the devices that are stored to those that are wanted. Used by one thread.

    ``allocated`` lists the devices of the pool that claims were given; it may raise ApiError, and is
    then asked again later. It is first asked ``settle_seconds`` after the taint, again as ``backoff`` says.
    ``is_under_way`` is whether any GPU waits, as of the last offers: only then matters what claims hold.
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
        self._told: dict[str, tuple[str, ...]] = {}
        self._names = IslandNames()
        self._last: Offers = Offers((), ())
        self.is_under_way = True

    def next_offers(
        self,
        wanted: Offers,
        held: frozenset[str],
        slices: Iterable[Mapping[str, Any]],
        *,
        taints_stored: bool = True,
    ) -> tuple[Offers, float | None]:
        """What to publish now, and in how many seconds to ask again when nothing else happens.

        ``slices`` are those that are stored of the driver for the node. Where the API server stores no
        taints, ``taints_stored`` is false and they are not waited for.
        """
        devices, counters = published(slices, self._pool, self._kinds)
        wanted = recalled(self._names.kept(wanted, devices), *self._remembered(devices, counters))

        def step_with(allocated: frozenset[str] | None) -> Step:
            return next_step(
                wanted,
                devices,
                counters,
                allocated,
                held,
                needs_taint=taints_stored,
                kinds=self._kinds,
            )

        step = step_with(None)
        waiting = frozenset(c.unit for c in step.changes if c.tainted and not c.in_the_way)
        now = time.monotonic()
        if waiting - self._waiting:
            self._look_at = now + self._settle_seconds
            self._backoff.reset()
        self._waiting = waiting
        if waiting and now >= self._look_at:
            step = step_with(self._look())
        self._last = step.offers
        self._tell(step.changes)
        self.is_under_way = bool(step.changes)
        if any(change.unit in waiting for change in step.changes):
            return step.offers, max(0.0, self._look_at - time.monotonic())
        if any(not change.tainted for change in step.changes):
            return step.offers, self._settle_seconds
        return step.offers, None

    def _remembered(
        self, devices: tuple[Device, ...], counters: tuple[CounterSet, ...]
    ) -> tuple[tuple[Device, ...], tuple[CounterSet, ...]]:
        """What is stored, and what was until a kubelet that starts wiped the slices."""
        names = {one.name for one in devices}
        sets = {one.name for one in counters}
        return (
            (*devices, *(one for one in self._last.devices if one.name not in names)),
            (*counters, *(one for one in self._last.counter_sets if one.name not in sets)),
        )

    def _look(self) -> frozenset[str] | None:
        """The devices that are allocated, None when that cannot be told; sets when to look again."""
        allocated, failure = None, None
        try:
            allocated = self._allocated()
        except ApiError as error:
            failure = error
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
