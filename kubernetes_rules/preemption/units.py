"""Divides running pods into units that have to go together, and finds the claims that become free then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs from a file; the API server refuses to evict them."""

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that have to go together, and the allocated claims that are free once they have gone.

    Pods that share a claim are one unit, since only its last user frees it. So are the pods of a PodGroup
    with the disruption mode All, on whatever nodes. ``priorities`` are those of the pods, in their order; a
    pod of a PodGroup has the group's.
    """

    pods: tuple[Json, ...]
    claims: tuple[Json, ...]
    priorities: tuple[int, ...]
    is_group: bool = False

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


def units_of(pods: Sequence[Json], claims: Iterable[Json], groups: Iterable[Json] = ()) -> Units:
    """The units of all pods; ``groups`` are PodGroups of scheduling.k8s.io/v1beta1.

    A claim cannot be freed, and so is in no unit, if nothing reserves it, or if something reserves it that is
    no pod, a pod that is not known, or a pod without a node.
    Go: getCrossNodesVictims in scheduler/framework/preemption.
    """
    there = [pod for pod in pods if is_there(pod)]
    known = {_uid(pod): pod for pod in pods}
    living = {_uid(pod): pod for pod in there if not is_ending(pod)}
    all_groups = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in groups}
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
    whole: dict[GroupKey, list[str]] = {}
    for uid, pod in living.items():
        key = group_key(pod)
        if key is not None and key in all_groups and goes_as_one(all_groups[key]):
            whole.setdefault(key, []).append(uid)
    for members in whole.values():
        parts.join(members)
    bound = {uid for members in whole.values() for uid in members}
    found: dict[str, list[Unit]] = {}
    for members in parts.all():
        own = tuple(living[uid] for uid in members)
        unit = Unit(
            own,
            tuple(claim for uid in members for claim in freed.get(uid, ())),
            tuple(effective_priority(pod, all_groups) for pod in own),
            is_group=not bound.isdisjoint(members),
        )
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
    """Whether the Eviction API can end the unit's pods, as far as budgets allow it."""
    return not any(_MIRROR in (pod["metadata"].get("annotations") or {}) for pod in unit.pods)


def pod_name(pod: Json) -> str:
    """``namespace/name``, for messages."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def group_key(pod: Json) -> GroupKey | None:
    """The PodGroup that a pod names, None if it names none."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return (str(pod["metadata"]["namespace"]), str(name)) if name else None


def goes_as_one(group: Json) -> bool:
    """Whether the pods of a PodGroup can only be disrupted together."""
    return (group["spec"].get("disruptionMode") or {}).get("all") is not None


def least_of(group: Json) -> int | None:
    """How many pods of a PodGroup have to be scheduled together; None if they are scheduled one by one."""
    gang = (group["spec"].get("schedulingPolicy") or {}).get("gang")
    return None if gang is None else int(gang["minCount"])


def effective_priority(pod: Json, groups: Mapping[GroupKey, Json]) -> int:
    """The priority of a pod's group, else its own; 0 without one.

    Go: GetPodPriority in scheduler/framework/preemption/util.go.
    """
    key = group_key(pod)
    group = groups.get(key) if key is not None else None
    return int((pod if group is None else group)["spec"].get("priority") or 0)


def _has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def _tuples(found: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {node: tuple(some) for node, some in found.items()}
