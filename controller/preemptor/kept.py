"""Keeps the room that was made for a pod until the pod has it, and notices when it does not get it.

Until then the devices count as taken, so no other pod waits for the same ones, and nobody else is evicted for
the pod. A pod that did not get its room waits before room is made for it again, each time twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from controller.preemptor.pending import Waiting
from kubernetes_rules.preemption.cluster import is_allocated

Json = Mapping[str, Any]
Object = dict[str, Any]
Fits = Literal["now", "soon", "no"]
"""Whether a pod fits on a node now, once others have ended anyway, or not."""

Outcome = Literal["used", "gone", "taken", "stuck", "unused"]
"""``used`` by its pod, or the pod is ``gone``; ``taken`` by another pod; a victim is ``stuck``; ``unused``:
the pod would fit, but the scheduler does not place it."""

END_SECONDS, MOST_END_SECONDS = 60.0, 300.0
"""How much longer than its grace period a pod may take to end, and how long at most.

Its owner chooses the grace period: a pod that ignores the signal to end could keep its GPU for years.
"""

UNUSED_SECONDS = 60.0
"""How long a pod may leave its room unused. The scheduler waits up to ten seconds before it tries again."""

TAKEN_SECONDS = 2.0
"""How long a pod must not fit until its devices count as taken: the scheduler writes one object after the
other, and their watches are not in step."""

FIRST_BACKOFF_SECONDS = 10.0
MOST_BACKOFF_SECONDS = 600.0

_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod with the node where there is room for it, and its claims as if they had the devices there."""

    pod: Object
    node: str
    claims: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The room for a pod: who had to go, and which claims that frees.

    ``until`` is when the victims must have ended, by a monotonic clock. ``freed_at`` is when all was free,
    ``doubted_at`` since when the pod does not fit all the same.
    """

    waiting: Waiting
    placed: Placed
    victims: tuple[Json, ...]
    freed: tuple[Json, ...]
    until: float
    freed_at: float | None = None
    doubted_at: float | None = None

    def left(self, pods: Mapping[str, Object], claims: Mapping[str, Object]) -> list[Object]:
        """The victims that have not ended, or else their claims that still have devices; by UID in both.

        Kubernetes frees the claims of a pod a moment after its end.
        """
        there = [pods[uid] for one in self.victims if (uid := _uid(one)) in pods]
        living = [
            pod for pod in there if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        gone = set(map(_uid, self.victims))
        return living or [
            claim
            for one in self.freed
            if (claim := claims.get(_uid(one))) is not None
            and is_allocated(claim)
            # Another pod may use the claim by now. Then it is not freed.
            and gone.issuperset(user.get("uid") for user in claim["status"].get("reservedFor") or ())
        ]


class Rooms:
    """The rooms that are kept, pods that wait for the next try, and victims that do not end.

    ``version`` changes with what ``overlaid`` does. In a dry run the victims of a room only count as ending
    as long as it is kept. Not thread-safe.
    """

    def __init__(self, *, dry_run: bool = False) -> None:
        self.version = 0
        self._dry_run = dry_run
        self._kept: dict[str, Kept] = {}
        self._ending: set[str] = set()
        self._stuck: set[str] = set()
        self._ends_by: dict[str, float] = {}
        self._seen: dict[str, tuple[Object, Object]] = {}
        self._before: Mapping[str, Object] = {}
        self._gone: dict[str, tuple[Object, float]] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def keep(self, kept: Kept) -> None:
        """Keep the room that the victims' end makes."""
        self._kept[kept.waiting.uid] = kept
        self.end(kept.victims)

    def end(self, victims: Iterable[Json]) -> None:
        """Count these pods as ending from now on, though the watch does not show it yet."""
        self._ending.update(_uid(one) for one in victims)
        self.version += 1

    def all(self) -> list[Kept]:
        """The rooms that are kept."""
        return list(self._kept.values())

    def is_kept_for(self, uid: str) -> bool:
        """Whether there is a room for the pod of this UID."""
        return uid in self._kept

    def wait_until(self, uid: str) -> float:
        """When room may be made for the pod again."""
        _, until = self._failures.get(uid, (0, 0.0))
        return until

    def lose(self, uid: str, now: float) -> float:
        """Note that the pod did not get its room; returns how many seconds the next try has to wait."""
        failures = self._failures.get(uid, (0, 0.0))[0]
        seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 30), MOST_BACKOFF_SECONDS)
        self._failures[uid] = failures + 1, now + seconds
        self.drop(uid)
        return seconds

    def drop(self, uid: str) -> None:
        """Keep the room no longer."""
        kept = self._kept.pop(uid, None)
        if kept is not None:
            self.version += 1
            if self._dry_run:
                self._ending.difference_update(_uid(one) for one in kept.victims)

    def judge(
        self,
        kept: Kept,
        pods: Mapping[str, Json],
        left: Collection[Object],
        now: float,
        fits: Callable[[], Fits],
    ) -> Outcome | None:
        """What became of a room; None while that is open.

        ``pods`` are those that exist, by UID, ``left`` is what ``Kept.left`` says. ``fits`` is called only
        after everything was freed.
        """
        pod = pods.get(kept.waiting.uid)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return "gone"
        if pod["spec"].get("nodeName"):
            return "used"
        if left:
            return "stuck" if now >= kept.until else None
        found = fits()
        freed_at = now if kept.freed_at is None else kept.freed_at
        doubted_at = now if kept.doubted_at is None else kept.doubted_at
        self._kept[kept.waiting.uid] = replace(
            kept, freed_at=freed_at, doubted_at=doubted_at if found == "no" else None
        )
        if found == "no":
            return "taken" if now >= doubted_at + TAKEN_SECONDS else None
        return "unused" if found == "now" and now >= freed_at + UNUSED_SECONDS else None

    def give_up_on(self, victims: Iterable[Json]) -> None:
        """Expect no longer that these pods end: their devices count as taken from now on."""
        self._stuck.update(_uid(one) for one in victims)
        self.version += 1

    def stuck(self) -> frozenset[str]:
        """The UIDs of the pods that should have ended and do not."""
        return frozenset(self._stuck)

    def see(self, pods: Mapping[str, Object], claims: Iterable[Object], now: float) -> None:
        """Note which pods have gone since the last time; ``pods`` are those that exist, by UID.

        Kubernetes frees their claims a moment later. Until then the claims count as those of ending pods.
        """
        for uid, pod in pods.items():
            ends = "deletionTimestamp" in pod["metadata"] and uid not in self._stuck
            if ends and now >= self._ends_by.setdefault(uid, now + end_seconds([pod])):
                self.give_up_on([pod])
        for uid in self._before.keys() - pods.keys():
            pod = self._before[uid]
            if pod["spec"].get("nodeName"):
                self._gone[uid] = _as_ending(pod), now + END_SECONDS
        self._before = pods
        if self._gone:
            held = [one["status"].get("reservedFor") or () for one in claims if is_allocated(one)]
            users = {user.get("uid") for some in held for user in some}
            before = self._gone
            self._gone = {uid: one for uid, one in before.items() if uid in users and now < one[1]}
            self.version += len(before) - len(self._gone)

    def forget(self, uids: Collection[str]) -> None:
        """Forget about pods that no longer exist; ``uids`` are those that do."""
        self._ending.intersection_update(uids)
        self._stuck.intersection_update(uids)
        self._ends_by = {uid: by for uid, by in self._ends_by.items() if uid in uids}
        self._failures = {uid: one for uid, one in self._failures.items() if uid in uids}

    def overlaid(self, pods: Iterable[Object]) -> list[Object]:
        """The pods as decisions have to see them: who is ending soon, and who seems to end and does not."""
        before, self._seen = self._seen, {}
        seen = [self._seen_as(pod, before) for pod in pods]
        return [*seen, *(pod for pod, _ in self._gone.values())]

    def _seen_as(self, pod: Object, before: Mapping[str, tuple[Object, Object]]) -> Object:
        uid, ends = _uid(pod), "deletionTimestamp" in pod["metadata"]
        if uid in self._stuck:
            seems_to_end = False
        elif uid in self._ending and not ends:
            seems_to_end = True
        else:
            return pod
        original, seen = before.get(uid, (None, pod))
        # The same object again, by which others see that nothing changed.
        if original is not pod or ("deletionTimestamp" in seen["metadata"]) != seems_to_end:
            seen = _as_ending(pod) if seems_to_end else _as_staying(pod)
        self._seen[uid] = pod, seen
        return seen

    def next_due(self, now: float) -> float:
        """The seconds until something has to be looked at again although nothing has changed."""
        times = [
            kept.until if kept.freed_at is None else kept.freed_at + UNUSED_SECONDS for kept in self.all()
        ]
        times += [kept.doubted_at + TAKEN_SECONDS for kept in self.all() if kept.doubted_at is not None]
        times += [until for _, until in self._gone.values()]
        times += [by for uid, by in self._ends_by.items() if uid not in self._stuck]
        times += [until for _, until in self._failures.values()]
        return min((at - now for at in times if at > now), default=float("inf"))


def end_seconds(pods: Iterable[Json]) -> float:
    """How long these pods may take to end."""
    asked = [
        one["metadata"].get("deletionGracePeriodSeconds", one["spec"].get("terminationGracePeriodSeconds"))
        for one in pods
    ]
    grace = max((_DEFAULT_GRACE_SECONDS if one is None else one for one in asked), default=0)
    return min(grace + END_SECONDS, MOST_END_SECONDS)


def _uid(one: Json) -> str:
    return str(one["metadata"]["uid"])


def _as_ending(pod: Object) -> Object:
    metadata = pod["metadata"]
    return {**pod, "metadata": {"deletionTimestamp": metadata.get("creationTimestamp"), **metadata}}


def _as_staying(pod: Object) -> Object:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "deletionTimestamp"}
    return {**pod, "metadata": metadata}
