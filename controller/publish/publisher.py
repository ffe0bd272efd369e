"""Keeps the ResourceSlices of this node's pool as they should be, while the kubelet plugin serves.

Every change of what is wanted, of the slices themselves, or of the plugin's state leads to one sync soon
after. A slice that is right already is not written. A failed sync is repeated with back-off.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from controller.health.incident_store import IncidentStore
from controller.intervals import Intervals
from controller.observe.allocations import allocated_devices
from controller.publish.changeover import Changeover, Published, Seen
from controller.publish.own_writes import OwnWrites
from controller.publish.slice_diff import Object, SyncPlan, plan_sync
from controller.publish.slice_writer import FieldsDropped, SliceWriter
from driver.devices.device import Device
from driver.devices.names import pool_name
from driver.errors import ApiError, DriverError
from driver.hardware.gpu import Gpu
from driver.health.verdict import with_verdicts
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.paths import RESOURCE_SLICES
from driver.kube.reflector import NODE_PAGE_SIZE, EventType, Reflector, Selection
from driver.policy.offers import Offers
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.process.pulse import AtWork
from driver.slices.specs import Layout, TaintTimes, lay_out, taint_times

_log = get_logger(__name__)

_DELETED_SECONDS = 1.0
"""The longest time until slices that somebody else deleted are written again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What should be published, with the devices that claims hold here, and the GPUs."""

    offers: Offers
    held: frozenset[str]
    gpus: tuple[Gpu, ...] = field(compare=False)


class Publisher:
    """Publishes the last offers for the pool of one node.

    ``reflector`` follows the slices and runs in a thread of its own. ``run`` works in the caller's thread
    until ``stop``, each sync within ``at_work``. ``incidents`` has the faults of GPUs that are not in the
    offers.
    """

    def __init__(
        self,
        client: KubeClient,
        writer: SliceWriter,
        metrics: Metrics,
        stop_event: threading.Event,
        *,
        node: str,
        driver: str,
        intervals: Intervals,
        at_work: AtWork = nullcontext,
        incidents: IncidentStore | None = None,
    ) -> None:
        self._writer = writer
        self.incidents = incidents or IncidentStore()
        self._intervals = intervals
        self._metrics = metrics
        self._node, self._driver = node, driver
        self._pool = pool_name(node, driver)
        self._changeover = Changeover(
            self._pool,
            lambda: allocated_devices(client, node=node, driver=driver, pool=self._pool),
            intervals.settle_seconds,
            Backoff(*intervals.list_again_seconds),
        )
        self._published = Published()
        self._taint_times: TaintTimes = {}
        # The devices that were written last, with the taints of faults, and what others published since.
        self._written: tuple[Device, ...] = ()
        self._foreign: set[str] = set()
        # All slices of the driver for the node count as this pool's, so that those of another installation
        # with the same driver name are replaced.
        self.reflector = Reflector(
            client,
            Selection(RESOURCE_SLICES, {"spec.driver": driver, "spec.nodeName": node}, {}, NODE_PAGE_SIZE),
            stop_event,
            on_event=self._slices_changed,
            on_list=self._slices_listed,
            on_failure=self._reflector_failed,
        )
        self._own_writes = OwnWrites(self.reflector.snapshot)
        self._backoff = Backoff(0.2, 10.0)
        # The longer two writers fight over the slices, the longer each waits.
        self._debounce = Backoff(*intervals.debounce_seconds, jitter=lambda: 0.0)
        self._debounce_seconds = intervals.debounce_seconds[0]
        self._wrote_at = float("-inf")
        self._at_work = at_work
        self._why_not = "the slices have not been compared yet"
        self._changed = threading.Condition()
        self._wanted: Wanted | None = None
        # Whether the last sync depended on what claims hold; otherwise a change of that needs no sync.
        self._held_matters = True
        self._serving = False
        self._has_turn = True
        self._is_standby = False
        self._stopped = False
        self._due = 0.0
        self._not_before = 0.0
        self._behind_since: float | None = None

    def offer(self, offers: Offers, held: frozenset[str] = frozenset(), gpus: tuple[Gpu, ...] = ()) -> None:
        """Publish this from now on; devices that break a limit of the API are left out and reported.

        ``held`` are the names of the devices that claims hold on this node, offered or not; ``offers`` must
        keep new claims away from them. Devices that are published and not offered any more stay until no
        claim has them.
        """
        with self._changed:
            before, self._wanted = self._wanted, Wanted(offers, held, gpus)
            if before is None or offers != before.offers or (before != self._wanted and self._held_matters):
                self._falls_behind()
                self._wake(0.0)

    def verdicts_changed(self) -> None:
        """Note that ``incidents`` has other verdicts than before."""
        with self._changed:
            if self._wanted is not None:
                self._falls_behind()
                self._wake(0.0)

    def plugin_serves(self, serving: bool) -> None:
        """Note whether the kubelet plugin serves; while it does not, nothing is written."""
        # The kubelet deletes the slices of a driver without a plugin. Writing them again would start a fight.
        with self._changed:
            if serving != self._serving:
                self._serving = serving
                _log.info("kubelet plugin serves" if serving else "kubelet plugin does not serve")
                self._wake(0.0)

    def stand_by(self) -> None:
        """Write nothing until ``has_turn``."""
        self._has_turn = False

    def another_publishes(self) -> None:
        """Note that another controller of the node publishes, and this one waits for its end."""
        self._is_standby = True

    def has_turn(self) -> None:
        """Note that no other controller of the node publishes from now on."""
        with self._changed:
            self._has_turn = True
            self._wake(0.0)

    def why_not_published(self) -> str:
        """Why the offers are not published yet; empty if they are, or if there is nothing to publish."""
        if not self._serving:
            return "no kubelet plugin of this node serves"
        if self._wanted is None:
            return (
                "the GPUs have not been read yet, or the kubelet plugin has not reported which devices "
                "are held"
            )
        # A controller that waits for another one is ready: in a rolling update Kubernetes ends the other one
        # only when this one is. Without another one the lock is taken soon, and until then nothing is
        # published.
        return "" if self._is_standby and not self._has_turn else self._why_not

    def age_seconds(self) -> float:
        """For how long something waits to be published; 0 if nothing does, or if another one publishes."""
        since = self._behind_since
        return 0.0 if since is None or not self._has_turn else time.monotonic() - since

    def offered(self) -> tuple[tuple[Device, ...], frozenset[str]]:
        """The devices that were published last, and the names of those that claims hold now."""
        wanted = self._wanted
        return self._written, frozenset() if wanted is None else wanted.held

    def stop(self) -> None:
        """Make ``run`` return after the present write; the slices stay."""
        # Running pods need them, and the next controller goes on with them.
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def run(self) -> None:
        """Sync whenever something has changed, until ``stop``."""
        while (wanted := self._next()) is not None:
            try:
                with self._at_work():
                    self._why_not = self._sync(wanted)
                self._backoff.reset()
                with self._changed:
                    if self._wanted == wanted and not self._why_not:
                        self._behind_since = None
            except DriverError as error:
                self._why_not = str(error)
                self._falls_behind()
                wait_seconds = self._backoff.next_seconds(error)
                _log.warning("cannot publish", error=str(error), again_in_seconds=round(wait_seconds, 2))
                with self._changed:
                    self._not_before = time.monotonic() + wait_seconds
                    self._wake(wait_seconds)

    def _slices_changed(self, kind: EventType, item: Object) -> None:
        is_ours = kind == "DELETED" or self._own_writes.is_ours(item)
        with self._changed:
            # Another controller published these, and a kubelet may delete them before the next sync.
            devices = () if is_ours else item["spec"].get("devices") or ()
            self._foreign.update(str(device["name"]) for device in devices)
            if time.monotonic() - self._wrote_at > self._intervals.quiet_seconds:
                self._debounce.reset()
                self._debounce_seconds = self._intervals.debounce_seconds[0]
            # A kubelet that restarts again and again deletes them each time, and is not a second writer.
            most_seconds = _DELETED_SECONDS if kind == "DELETED" else self._debounce_seconds
            self._wake(min(self._debounce_seconds, most_seconds))

    def _slices_listed(self, _objects: int) -> None:
        self._metrics.reflector_restarted()
        with self._changed:
            self._wake(0.0)

    def _reflector_failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("cannot follow the slices", error=str(error), again_in_seconds=round(wait_seconds, 2))

    def _falls_behind(self) -> None:
        """Note that something has to be published."""
        if self._behind_since is None:
            self._behind_since = time.monotonic()

    def _wake(self, seconds: float) -> None:
        """Sync in this many seconds, or earlier if a sync is due earlier. The lock is held."""
        self._due = min(self._due, time.monotonic() + seconds)
        self._changed.notify_all()

    def _next(self) -> Wanted | None:
        """Wait for the next sync; returns what it has to publish, None when stopped."""
        with self._changed:
            while not self._stopped:
                may_write = self._serving and self._has_turn
                # Before the first list is there, all slices would look as if they were missing.
                if not may_write or self._wanted is None or not self.reflector.synced.is_set():
                    self._changed.wait()
                    continue
                now = time.monotonic()
                # _not_before is the back-off after a failure, which no change may shorten.
                wait_seconds = max(self._due, self._not_before) - now
                if wait_seconds <= 0:
                    self._due = now + self._intervals.resync_seconds
                    return self._wanted
                self._changed.wait(wait_seconds)
        return None

    def _sync(self, wanted: Wanted) -> str:
        """Publish what is wanted; returns why a part of it is not published yet, empty if nothing failed."""
        stored = self._own_writes.objects()
        try:
            self._writer.check_server()
            return self._publish(wanted, stored)
        except FieldsDropped as error:
            # Without counters or sharing the scheduler would hand out the same hardware twice.
            for item in self._own_writes.objects():
                self._delete(item)
            return str(error)

    def _publish(self, wanted: Wanted, stored: list[Object]) -> str:
        self._held_matters = True
        # No GPU could be read yet and nothing is stored. An empty slice would say that the node has no GPU.
        if wanted.offers.knows_nothing and not stored:
            return ""
        with self._changed:
            foreign, self._foreign = frozenset(self._foreign), set()
        seen = Seen(wanted.offers, wanted.held, stored, wanted.gpus, foreign)
        self._published = published = self._changeover.step(self._published, seen)
        # Faults are added last: they are not a part of what changeovers compare.
        sick = with_verdicts(published.offers.devices, self.incidents.verdicts())
        layout = self._layout(replace(published.offers, devices=sick))
        times = taint_times(layout.specs, (item["spec"] for item in stored), self._taint_times)
        self._taint_times = times
        plan = plan_sync(layout.specs, stored, times)
        if not plan.empty:
            with self._metrics.operation("publish"):
                self._write(plan)
        self._written = sick
        self._metrics.published_slices.set(len(layout.specs))
        self._metrics.published_devices.set(sum(len(spec.get("devices", ())) for spec in layout.specs))
        with self._changed:
            self._held_matters = bool(published.leaving)
            again_in_seconds = published.again_in_seconds(time.monotonic(), self._intervals.settle_seconds)
            if again_in_seconds is not None:
                self._wake(again_in_seconds)
        return published.failure

    def _layout(self, offers: Offers) -> Layout:
        layout = lay_out(
            offers.devices,
            counter_sets=offers.counter_sets,
            pool=self._pool,
            node=self._node,
            driver=self._driver,
        )
        for rejected in layout.rejected:
            self._writer.report_rejected(rejected)
        return layout

    def _write(self, plan: SyncPlan) -> None:
        self._wrote_at = time.monotonic()
        self._debounce_seconds = self._debounce.next_seconds()
        # In the order of the Go helper. A slice too many makes a pool incomplete, as a missing one does.
        for item in plan.deletes:
            self._delete(item)
        for answer in self._writes(plan):
            self._own_writes.wrote(answer)
        _log.info(
            "slices published",
            deleted=len(plan.deletes),
            updated=len(plan.updates),
            created=len(plan.creates),
        )

    def _delete(self, item: Object) -> None:
        self._writer.delete(item)
        self._own_writes.deleted(item)

    def _writes(self, plan: SyncPlan) -> Iterator[Object]:
        """Update and create slices, one at each step; yields the server's answers."""
        for update in plan.updates:
            yield self._writer.update(update)
        owner = self._writer.owner() if plan.creates else {}
        for create in plan.creates:
            yield self._writer.create(create, owner)
