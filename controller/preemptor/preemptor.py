"""Makes room for pods that wait for devices: looks when something changed, decides, evicts, and says so.

One thread does all of this. It acts only while this replica has the Lease and everything it watches is up to
date. If thousands of pods wait while devices come and go, it rests after each round, so that it uses at most
about a fortieth of a core. Meanwhile it makes short rounds, for the most important pods and for new ones.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.preemptor.decisions import Decisions, Verdict
from controller.preemptor.evict import Carried, Evictor
from controller.preemptor.kept import Kept, Placed, Rooms, end_seconds
from controller.preemptor.pending import Exempt, Surroundings, Waiting, WaitingPods, name_of, named
from controller.preemptor.steps_aside import SchedulerPreempts, is_making_room
from controller.preemptor.watch import Stored, Watch
from driver.errors import ApiError
from driver.event_reasons import EventReason
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.events import EventRecorder, Reference
from driver.kube.lease import Lease
from driver.kube.paths import pod_path
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.process.pulse import AtWork

Object = dict[str, Any]

SETTLE_SECONDS = 0.2
"""How long a round waits for changes that belong together: claims and pods come by different watches."""

_SETTLE, _MOST_SETTLE_SECONDS = 4.0, 1.0
"""If rounds take long, it waits so many times as long as the last one took, up to a second."""

REST = 79.0
"""After a round it rests so many times as long as the round took, also after a short one."""

ROUND_SECONDS, SHORT_SECONDS = 0.5, 0.05
"""How long a round may decide, and a short one while it rests. Other pods wait for the next round."""

_BEHIND_SECONDS = 0.1
_MOST_TOLD = 50
"""Of pods that ask for the same, so many get an event that says why no room is made."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the flags decide."""

    exempt: Exempt = field(default_factory=Exempt)
    dry_run: bool = False
    nominate: bool = False


class Preemptor:
    """The thread that decides and evicts. ``wake`` makes it look again."""

    def __init__(
        self,
        client: KubeClient,
        watch: Callable[[Callable[[], None]], Watch],
        lease: Lease,
        scheduler: SchedulerPreempts,
        evictor: Evictor,
        recorder: EventRecorder,
        metrics: Metrics,
        behaviour: Behaviour,
        stop: threading.Event,
        at_work: AtWork,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._client = client
        self._wake = threading.Event()
        self.watch = watch(self._wake.set)
        self._lease = lease
        self._scheduler = scheduler
        self._evictor = evictor
        self._recorder = recorder
        self._metrics = metrics
        self._behaviour = behaviour
        self._stop = stop
        self._at_work = at_work
        self._clock = clock
        self._cpu = cpu
        self._rooms = Rooms(dry_run=behaviour.dry_run)
        self._decisions = Decisions(behaviour.exempt)
        self._waiting = WaitingPods(behaviour.exempt)
        self._backoff = Backoff(1.0, 30.0)
        self._not_before = 0.0
        """No decision before this time: the API server failed, or too many were evicted."""
        self._rest_until = self._short_not_before = 0.0
        self._took = 0.0
        self._acts = False
        self._pods_version = -1
        self._told: dict[str, str] = {}
        self._missed: Counter[str] = Counter()
        """For how many rounds there has been no time for a pod, by UID."""
        self.waiting_count = 0

    def wake(self) -> None:
        """Look again soon."""
        self._wake.set()

    def run(self) -> None:
        """Make room until the process stops."""
        due: float | None = None
        while not self._stop.is_set():
            self._wake.wait(due)
            self._wake.clear()
            # Not a poll: what belongs together arrives within moments, and each round costs time.
            self._stop.wait(max(SETTLE_SECONDS, min(_SETTLE * self._took, _MOST_SETTLE_SECONDS)))
            due = self._look()

    def _look(self) -> float | None:
        """One round if this replica may act; returns the seconds until the next, None for the next change."""
        if not self._lease.is_held() or not self._scheduler.is_known:
            self._acts = False
            return None
        if self.watch.why_not():
            return _BEHIND_SECONDS
        if not self._acts:
            self._acts = True
            _log.info("makes room from now on", dry_run=self._behaviour.dry_run)
        stored = self.watch.stored()
        rest_seconds = min(self._rest_until, self._short_not_before) - self._clock()
        # Without a pod that is new there is nothing that cannot wait for a moment.
        if rest_seconds > 0 and stored.pods_version == self._pods_version:
            return rest_seconds
        self._pods_version = stored.pods_version
        with self._at_work():
            due = self.round(stored)
        return None if due == float("inf") else max(0.0, due)

    def round(self, stored: Stored) -> float:
        """Look at everything once, and act; returns the seconds until there is something to do again."""
        started = self._cpu()
        pods = {str(pod["metadata"]["uid"]): pod for pod in stored["pods"]}
        self._rooms.forget(pods)
        self._rooms.see(pods, stored["claims"], self._clock())
        self._told = {uid: text for uid, text in self._told.items() if uid in pods}
        claims = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in stored["claims"]}
        around = Surroundings(stored["pods"], claims, stored["classes"], stored["nodes"])
        by_uid = {str(one["metadata"]["uid"]): one for one in stored["claims"]} if self._rooms.all() else {}
        for kept in self._rooms.all():
            self._decisions.update(stored, around, self._rooms)
            self._follow(kept, pods, kept.left(pods, by_uid))
        waiting = self._waiting.among(around)
        self.waiting_count = len(waiting)
        self._decisions.forget(waiting)
        rests = self._clock() < self._rest_until
        left = None if self._scheduler.reason else self._make_room(stored, around, waiting, rests=rests)
        self._took = self._cpu() - started
        now = self._clock()
        if not rests:
            self._rest_until = now + REST * self._took
        self._short_not_before = now + REST * (self._took if rests else min(self._took, SHORT_SECONDS))
        due = [self._rooms.next_due(now), *(at - now for at in (self._not_before,) if at > now)]
        if left is not None:
            next_round = (
                self._rest_until if left == "costly" else min(self._rest_until, self._short_not_before)
            )
            due.append(next_round - now)
        return min(due)

    def _make_room(
        self, stored: Stored, around: Surroundings, waiting: Iterable[Waiting], *, rests: bool
    ) -> Literal["any", "costly"] | None:
        """Decide and evict in order; returns whether pods are left, or only some that take long to decide."""
        started = self._cpu()
        stuck = self._rooms.stuck()
        on_node = _by_node(pod for pod in stored["pods"] if pod["metadata"]["uid"] not in stuck)
        told: Counter[str] = Counter()
        left: set[Literal["any", "costly"]] = set()
        missed: Counter[str] = Counter()
        for one in sorted(waiting, key=self._turn):
            if self._has_to_wait(one, on_node):
                continue
            self._decisions.update(stored, around, self._rooms)
            verdict = self._decisions.known(one)
            if self._decisions.is_due(one):
                in_time = self._cpu() - started < self._most_seconds(one, is_new=verdict is None, rests=rests)
                verdict = self._decide(one) if in_time else verdict
                # A less important pod must not take what this one waits for.
                if in_time and verdict is None:
                    break
                if not in_time:
                    missed[one.uid] = self._missed[one.uid] + 1
                if self._decisions.is_costly(one):
                    left.add("costly")
                elif not in_time:
                    left.add("any")
            if verdict is not None and verdict.kind in ("refused", "unjudged"):
                told[one.alike] += 1
                if told[one.alike] <= _MOST_TOLD:
                    self._say_why_not(one, verdict)
        self._missed = missed
        return min(left, default=None)

    def _turn(self, one: Waiting) -> tuple[bool, int, int]:
        """Sorts those that wait; between equals the order stays, from the oldest to the newest."""
        # One pod whose decision takes long must not keep others waiting, and neither must pods whose labels
        # somebody changes all the time, so that each round has to decide about them again.
        return self._decisions.is_costly(one), -one.priority, -self._missed[one.uid]

    def _most_seconds(self, one: Waiting, *, is_new: bool, rests: bool) -> float:
        """How long a round may have decided before it comes to this pod."""
        if not rests:
            return ROUND_SECONDS
        if self._decisions.is_costly(one):
            return 0.0
        # Half of a short round is for pods that are new.
        return SHORT_SECONDS if is_new else SHORT_SECONDS / 2

    def _has_to_wait(self, one: Waiting, on_node: Mapping[str, list[Object]]) -> bool:
        """Whether room is being made for the pod already, or must not be made yet."""
        if self._rooms.is_kept_for(one.uid) or self._clock() < self._rooms.wait_until(one.uid):
            return True
        nominated = (one.pod.get("status") or {}).get("nominatedNodeName")
        return is_making_room(one.pod, on_node.get(nominated or "", ()))

    def _decide(self, one: Waiting) -> Verdict | None:
        """Decide, and evict if there is room to make; None if nobody may be evicted at the moment."""
        if self._clock() < self._not_before:
            return None
        verdict = self._decisions.decide(one)
        if verdict.placed is not None:
            if not self._may_evict(len(verdict.victims)):
                return None
            self._carry_out(one, verdict, verdict.placed)
        return verdict

    def _may_evict(self, pods: int) -> bool:
        seconds = self._evictor.allowance.wait_seconds(pods)
        if seconds:
            _log.info("waits, since too many pods were evicted", seconds=round(seconds, 1))
            self._not_before = self._clock() + seconds
        return not seconds

    def _carry_out(self, one: Waiting, verdict: Verdict, placed: Placed) -> None:
        if self._behaviour.dry_run:
            done = Carried(evicted=list(verdict.victims))
            for _ in verdict.victims:
                self._evictor.allowance.take()
        else:
            done = self._evictor.carry_out(placed.pod, placed.claims, verdict.victims)
        self._report_victims(one, placed.node, done)
        if done.stopped:
            self._stopped(one, done)
            return
        self._backoff.reset()
        patience = float("inf") if self._behaviour.dry_run else end_seconds(verdict.victims)
        until = self._clock() + patience
        self._rooms.keep(Kept(one, placed, verdict.victims, verdict.freed, until))
        dry, node = self._behaviour.dry_run, placed.node
        reason = EventReason.ROOM_WOULD_BE_MADE if dry else EventReason.ROOM_MADE
        names = named(verdict.victims, one.pod["metadata"]["namespace"])
        text = f"{'would evict' if dry else 'evicted'} {names} on node {node} for the devices of this pod"
        self._post(one.pod, reason, text)
        if self._behaviour.nominate and not dry:
            self._nominate(one.pod, node)
        everybody = ", ".join(map(name_of, verdict.victims))
        _log.info("made room", pod=str(one), node=node, evicted=everybody, dry_run=dry)

    def _report_victims(self, one: Waiting, node: str, done: Carried) -> None:
        dry = self._behaviour.dry_run
        reason = EventReason.WOULD_BE_PREEMPTED if dry else EventReason.PREEMPTED_FOR_DEVICES
        for victim in done.evicted:
            words = "would be evicted" if dry else "evicted"
            # Pods of other namespaces go by their UID, as in kube-scheduler's own event.
            is_own = victim["metadata"]["namespace"] == one.pod["metadata"]["namespace"]
            text = f"{words} for the pod {one if is_own else one.uid} of priority {one.priority}"
            text = f"{text}, which needs its devices"
            self._post(victim, reason, f"{text} on node {node}")
            if not dry:
                self._metrics.eviction_ended("evicted")

    def _stopped(self, one: Waiting, done: Carried) -> None:
        """Take back what was not finished: the next round decides again, on what is then the case."""
        _log.warning("stopped before all pods were evicted", pod=str(one), reason=done.stopped)
        if done.evicted:
            self._rooms.end(done.evicted)
        now = self._clock()
        if done.refused:
            self._metrics.eviction_ended("refused")
            seconds = self._rooms.lose(one.uid, now)
            text = "the API server refused an eviction, as it does for a PodDisruptionBudget"
            self._post(one.pod, EventReason.ROOM_REFUSED, f"{text}; tries again in {seconds:.0f} s")
        elif done.error is not None:
            self._metrics.eviction_ended("failed")
            self._not_before = now + self._backoff.next_seconds(done.error)
        else:
            # Something else has changed; the watches show it within a moment.
            self._not_before = now + SETTLE_SECONDS

    def _follow(self, kept: Kept, pods: Mapping[str, Object], left: list[Object]) -> None:
        """See what became of a room; ``left`` are the victims that have not ended."""
        now = self._clock()
        outcome = self._rooms.judge(kept, pods, left, now, lambda: self._decisions.fits(kept, pods))
        if outcome is None:
            return
        if not self._behaviour.dry_run:
            self._metrics.room_ended(outcome)
        _log.info("a room is kept no longer", pod=str(kept.waiting), node=kept.placed.node, outcome=outcome)
        if outcome in ("used", "gone"):
            self._rooms.drop(kept.waiting.uid)
            return
        if outcome == "stuck":
            self._rooms.give_up_on(left)
        seconds = self._rooms.lose(kept.waiting.uid, now)
        namespace = kept.waiting.pod["metadata"]["namespace"]
        node = kept.placed.node
        why = {
            "taken": f"another pod took the devices on node {node}",
            "stuck": f"{named(left, namespace)} did not end on node {node}",
            "unused": f"the scheduler did not place the pod on node {node}, where it seems to fit",
        }[outcome]
        self._post(kept.waiting.pod, EventReason.ROOM_LOST, f"{why}; tries again in {seconds:.0f} s")
        if self._behaviour.nominate and not self._behaviour.dry_run:
            self._nominate(kept.waiting.pod, "")

    def _nominate(self, pod: Object, node: str) -> None:
        """Tell the scheduler for which node the pod waits; it keeps CPU and memory there for it."""
        metadata = pod["metadata"]
        path = f"{pod_path(metadata['namespace'], metadata['name'])}/status"
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"nominatedNodeName": node or None}}
        try:
            self._client.patch(path, body, "application/merge-patch+json")
        except ApiError as error:
            _log.info("cannot nominate a node", pod=name_of(pod), node=node, error=str(error))

    def _say_why_not(self, one: Waiting, verdict: Verdict) -> None:
        refused = verdict.kind == "refused"
        reason = EventReason.ROOM_REFUSED if refused else EventReason.ROOM_NOT_JUDGED
        if self._told.get(one.uid) != verdict.text:
            self._told[one.uid] = verdict.text
            self._post(one.pod, reason, f"nobody is evicted for this pod: {verdict.text}")

    def _post(self, pod: Object, reason: EventReason, text: str) -> None:
        metadata = pod["metadata"]
        about = Reference("v1", "Pod", metadata["name"], metadata["uid"], metadata["namespace"])
        self._recorder.post(about, reason, text)


def _by_node(pods: Iterable[Object]) -> dict[str, list[Object]]:
    on_node: dict[str, list[Object]] = {}
    for pod in pods:
        if node := pod["spec"].get("nodeName"):
            on_node.setdefault(node, []).append(pod)
    return on_node
