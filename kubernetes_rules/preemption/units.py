"""Divides running pods into units that have to go together, and compares sets of them as kube-scheduler does.

A unit frees claims once it has gone. What it costs is compared as in pickOneNodeForPreemption and
MoreImportantVictim (Go: scheduler/framework/preemption), with what disruption budgets protect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from kubernetes_rules.disruption_budgets import (
    budget_selects,
    is_processed,
    may_evict_unready,
    may_ignore_budgets,
)

Json = Mapping[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs from a file; the API server refuses to evict them."""

_ENDED = ("Succeeded", "Failed")
_OFFSET = 2**31
"""Added to each priority, so that fewer pods of a negative priority count less than more of them."""

NOT_STARTED = float("-inf")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that have to go together, and the allocated claims that are free once they have gone.

    Pods that share a claim are one unit, since only its last user frees it, on whatever nodes.
    """

    pods: tuple[Json, ...]
    claims: tuple[Json, ...]

    @property
    def priorities(self) -> tuple[int, ...]:
        """The priorities of the pods, in their order."""
        return tuple(int(pod["spec"].get("priority") or 0) for pod in self.pods)

    @property
    def priority(self) -> int:
        """The highest priority of its pods."""
        return max(self.priorities)

    @property
    def started(self) -> str | None:
        """The earliest start of the pods with the highest priority; None if none of them has started."""
        starts = [
            str(start)
            for pod, priority in zip(self.pods, self.priorities, strict=True)
            if priority == self.priority and (start := (pod.get("status") or {}).get("startTime"))
        ]
        return min(starts, default=None)

    def __str__(self) -> str:
        return ", ".join(map(pod_name, self.pods))


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a cluster by node: a unit is on each node where one of its pods is.

    ``ending`` are allocated claims whose users end without help: they are being deleted, or have ended.
    ``there`` are the pods that use something of a node; those that are being deleted are among them.
    """

    on_node: Mapping[str, tuple[Unit, ...]] = field(default_factory=dict)
    ending: tuple[Json, ...] = ()
    there: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)


def units_of(pods: Sequence[Json], claims: Iterable[Json]) -> Units:
    """The units of all pods.

    A claim cannot be freed, and so is in no unit, if nothing reserves it, or if something reserves it that is
    no pod, a pod that is not known, or a pod without a node.
    Go: getCrossNodesVictims in scheduler/framework/preemption.
    """
    there = [pod for pod in pods if is_there(pod)]
    known = {_uid(pod): pod for pod in pods}
    living = {_uid(pod): pod for pod in there if not is_ending(pod)}
    parts = _Parts(living)
    freed: dict[str, list[Json]] = {}
    ending = []
    for claim in claims:
        users = _users(claim, known, living)
        if users:
            parts.join(users)
            freed.setdefault(users[0], []).append(claim)
        elif users is not None:
            ending.append(claim)
    found: dict[str, list[Unit]] = {}
    for members in parts.all():
        own = tuple(living[uid] for uid in members)
        unit = Unit(own, tuple(claim for uid in members for claim in freed.get(uid, ())))
        for node in dict.fromkeys(node_of(pod) for pod in own):
            found.setdefault(node, []).append(unit)
    by_node: dict[str, list[Json]] = {}
    for pod in there:
        by_node.setdefault(node_of(pod), []).append(pod)
    return Units(_tuples(found), tuple(ending), _tuples(by_node))


class _Parts:
    """Disjoint sets of pods, in the order of their first pods."""

    def __init__(self, uids: Iterable[str]) -> None:
        self._of = {uid: [uid] for uid in uids}

    def join(self, uids: Sequence[str]) -> None:
        """Put the pods, and all that are in a set with one of them, into one set."""
        first = self._of[uids[0]]
        for uid in uids[1:]:
            other = self._of[uid]
            if other is not first:
                first += other
                for one in other:
                    self._of[one] = first

    def all(self) -> Iterable[list[str]]:
        """All sets."""
        return {id(one): one for one in self._of.values()}.values()


def _users(claim: Json, known: Mapping[str, Json], living: Mapping[str, Json]) -> list[str] | None:
    """The living pods that use an allocated claim; None if it is not free once they have ended."""
    status = claim.get("status") or {}
    reserved = status.get("reservedFor")
    if not status.get("allocation") or not reserved:
        return None
    users = []
    for one in reserved:
        pod = known.get(str(one.get("uid")))
        if one.get("resource") != "pods" or one.get("apiGroup") or pod is None:
            return None
        if _uid(pod) in living:
            users.append(_uid(pod))
        elif not is_ending(pod) and not _has_ended(pod):
            return None  # it is being bound to a node just now
    return users


def is_there(pod: Json) -> bool:
    """Whether a pod uses something of a node: it has one, and has not ended."""
    return bool(pod["spec"].get("nodeName")) and not _has_ended(pod)


def is_ending(pod: Json) -> bool:
    """Whether a pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def node_of(pod: Json) -> str:
    """The name of the pod's node, empty without one."""
    return str(pod["spec"].get("nodeName") or "")


def can_be_evicted(unit: Unit) -> bool:
    """Whether the Eviction API can end the unit's pods, as far as budgets allow it.

    Pods of a PodGroup are left alone: others of their group may have to go with them.
    """
    return not any(
        _MIRROR in (pod["metadata"].get("annotations") or {}) or group_of(pod) is not None
        for pod in unit.pods
    )


def pod_name(pod: Json) -> str:
    """``namespace/name``, for messages."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def group_of(pod: Json) -> str | None:
    """The name of the PodGroup that a pod belongs to (KEP-4671), None if it belongs to none."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return str(name) if name else None


def _has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def _tuples(found: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {node: tuple(some) for node, some in found.items()}


class Cost(NamedTuple):
    """What a set of victims costs; of two sets the smaller cost is preferred.

    ``violations`` is how many pods the Eviction API would refuse because of a budget, ``highest`` the highest
    priority, ``total`` the sum of the priorities, each with 2**31 added, and ``pods`` their number.
    ``since`` is the earliest start of the pods with the highest priority, as negative seconds since 1970: the
    latest start is preferred.
    """

    violations: int
    highest: int
    total: int
    pods: int
    since: float


NOBODY = Cost(0, -_OFFSET, 0, 0, NOT_STARTED)
"""The cost if nobody has to go."""


class Charge(NamedTuple):
    """What the end of a unit takes of budgets: how many pods of each, by the budget's index.

    ``refused`` are the pods that may not be evicted at all: the Eviction API refuses a pod with two budgets.
    """

    refused: int
    pods: tuple[tuple[int, int], ...]


class Budgets:
    """The PodDisruptionBudgets of a cluster, and how many evictions they allow now."""

    def __init__(self, budgets: Iterable[Json] = ()) -> None:
        self._in: dict[str, list[tuple[int, Json]]] = {}
        self._allowed: list[int] = []
        self._charges: dict[Unit, Charge] = {}
        for index, budget in enumerate(budgets):
            self._in.setdefault(str(budget["metadata"]["namespace"]), []).append((index, budget))
            # The API server refuses evictions until the controller has seen the newest budget.
            allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0) if is_processed(budget) else 0
            self._allowed.append(max(0, allowed))

    def charge(self, unit: Unit) -> Charge:
        """What the end of a unit takes of the budgets."""
        known = self._charges.get(unit)
        if known is None:
            counted: Counter[int] = Counter()
            refused = 0
            for pod in unit.pods:
                charged = self._of(pod)
                refused += len(charged) > 1
                if len(charged) == 1:
                    counted[charged[0]] += 1
            known = self._charges[unit] = Charge(refused, tuple(sorted(counted.items())))
        return known

    def violations(self, charges: Iterable[Charge]) -> int:
        """How many pods of a set of units the Eviction API would refuse."""
        refused, counted = 0, Counter[int]()
        for charge in charges:
            refused += charge.refused
            for index, pods in charge.pods:
                counted[index] += pods
        return refused + sum(max(0, pods - self._allowed[index]) for index, pods in counted.items())

    def _of(self, pod: Json) -> list[int]:
        if may_ignore_budgets(pod):
            return []
        selecting = [
            (index, budget)
            for index, budget in self._in.get(str(pod["metadata"]["namespace"]), ())
            if budget_selects(budget, pod)
        ]
        if len(selecting) > 1:
            return [index for index, _ in selecting]
        name = pod["metadata"]["name"]
        return [
            index
            for index, budget in selecting
            # An eviction that was allowed before is counted already.
            if name not in ((budget.get("status") or {}).get("disruptedPods") or {})
            and not may_evict_unready(budget, pod)
        ]


def cost_of(units: Iterable[Unit], budgets: Budgets) -> Cost:
    """What it costs if these units go."""
    going = list(units)
    if not going:
        return NOBODY
    highest, since = max(map(key_of, going))
    return Cost(
        budgets.violations(map(budgets.charge, going)),
        highest,
        sum(map(weight_of, going)),
        sum(len(unit.pods) for unit in going),
        since,
    )


def key_of(unit: Unit) -> tuple[int, float]:
    """``highest`` and ``since`` of the unit; those of a set are the largest of its units'."""
    return unit.priority, NOT_STARTED if unit.started is None else -_seconds(unit.started)


def weight_of(unit: Unit) -> int:
    """``total`` of the unit; that of a set is their sum."""
    return sum(priority + _OFFSET for priority in unit.priorities)


def importance(unit: Unit) -> tuple[int, int, float]:
    """Larger for units that are more important: they are the last to go.

    Priority counts first, then more pods, then the earlier start.
    """
    priority, since = key_of(unit)
    return priority, len(unit.pods), since


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
