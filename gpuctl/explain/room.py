"""Says whose end would let a pod that waits have its devices: the best answer, in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driver.kube.errors import Forbidden, NotFound
from gpuctl.cli.cluster import ClusterView
from gpuctl.explain.findings import Explanation, Finding
from gpuctl.explain.gang import GangAnswer, judge_gang
from gpuctl.explain.pod.claims import claims_of_pod
from gpuctl.explain.snapshot import SCHEDULING, Object, Snapshot
from kubernetes_rules.cel.selector import TooCostly, selectors_within
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.choose import best_room
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.units import GroupKey, Unit, can_be_evicted, effective_priority, group_key

SELECTOR_SECONDS = 10.0
"""The processor time that selectors may take while room is looked for."""

_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"

_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"

_HELD = frozenset({"in-use", "counters", "capacity", "constraint", "together", "too-few", "all"})
"""The kinds of findings about devices that others may hold."""

CLAIM_NOT_MADE = "claim-not-made"
"""The kind of the one finding about a claim that does not keep room from helping."""


@dataclass(frozen=True, slots=True)
class Occupants:
    """Who uses the nodes or waits for one, and what protects pods.

    ``groups`` is None if the cluster has no PodGroups. ``unread`` are the kinds that this user may not read.
    """

    pods: tuple[Object, ...]
    budgets: tuple[Object, ...]
    groups: tuple[Object, ...] | None
    unread: tuple[str, ...]

    @property
    def knows_groups(self) -> bool:
        """Whether all PodGroups and their pods were read."""
        return self.groups is not None and not {"pods", "podgroups"}.intersection(self.unread)


@dataclass(frozen=True, slots=True)
class LowerPriority:
    """Units of a lower priority than a pod's may go."""

    priority: int

    def __call__(self, unit: Unit) -> bool:
        """Whether the unit may go."""
        return unit.priority < self.priority and can_be_evicted(unit)


def priority_of(pod: Mapping[str, Any]) -> int:
    """The priority of a pod, which admission has put into its spec."""
    return int(pod["spec"].get("priority") or 0)


def read_occupants(view: ClusterView) -> Occupants:
    """Read all pods, and the budgets and groups. Raises ApiError, but not if rights are missing."""
    unread: list[str] = []

    def perhaps(path: str, **params: str) -> tuple[Object, ...]:
        try:
            return tuple(view.listed(path, **params))
        except Forbidden:
            unread.append(path.rpartition("/")[2])
        except NotFound:  # a server that is older, or has the feature off
            pass
        return ()

    pods, budgets = perhaps("/api/v1/pods", fieldSelector=_NOT_ENDED), perhaps(_BUDGETS)
    # Where groups are not served, a user without rights to them would be refused all the same.
    served = (view.found(SCHEDULING) or {}).get("resources") or ()
    has_groups = any(one["name"] == "podgroups" for one in served)
    groups = perhaps(f"{SCHEDULING}/podgroups") if has_groups else None
    return Occupants(pods, budgets, groups, tuple(unread))


def cluster_of(snapshot: Snapshot, occupants: Occupants, *classes: Object) -> Cluster:
    """The cluster in which room is looked for, with more ``classes``. Raises AllocationFailed."""
    return Cluster(
        nodes=snapshot.known_nodes(),
        slices=snapshot.slices,
        classes=(*snapshot.classes, *classes),
        claims=snapshot.claims,
        pods=occupants.pods,
        budgets=occupants.budgets,
        taint_rules=snapshot.taint_rules,
        groups=occupants.groups or (),
    )


class Rooms:
    """Adds to explanations who would have to go, and what becomes of a gang.

    Pods, budgets and groups are read once, when they first matter.
    """

    def __init__(self, snapshot: Snapshot, read: Callable[[], Occupants]) -> None:
        self._snapshot = snapshot
        self._read = read
        self._known: tuple[Occupants, Cluster] | None = None
        self._gangs: dict[GroupKey, GangAnswer | None] = {}

    def added_to(
        self,
        told: Explanation,
        pod: Object,
        templates: Mapping[str, Object | None],
        events: Sequence[Object],
    ) -> Explanation:
        """The explanation of a pod, with its room as the first finding if there is one. Raises ApiError."""
        key = group_key(pod)
        if key is not None and told.verdict in ("waits", "fits"):
            told, is_gang = self._with_gang(told, key)
            if is_gang:
                return told
        if told.verdict != "waits" or not any(one.kind in _HELD for one in told.findings):
            return told
        claims = claims_of_pod(pod, self._snapshot, templates, events)
        if any(one.kind != CLAIM_NOT_MADE for one in claims.findings):
            return told
        asked = Asked(pod, claims.claims, claims.extended)
        try:
            with selectors_within(SELECTOR_SECONDS):
                occupants, cluster = self._seen()
                found = room_finding(cluster, asked)
        except (RuleError, TooCostly):
            return told  # the explanation names what is malformed, or too costly, already
        unread = tuple(dict.fromkeys((*told.unread, *occupants.unread)))
        return replace(told, findings=(*([found] if found else []), *told.findings), unread=unread)

    def gang(self, key: GroupKey) -> tuple[GangAnswer | None, tuple[str, ...]]:
        """What is said of a PodGroup, None if its pods are no gang; and the kinds that could not be read.

        Raises ApiError, RuleError and TooCostly.
        """
        with selectors_within(SELECTOR_SECONDS):
            occupants, cluster = self._seen()
            if key not in self._gangs and occupants.knows_groups:
                members = [pod for pod in occupants.pods if group_key(pod) == key]
                priority = min((effective_priority(pod, cluster.groups) for pod in members), default=0)
                may_go = LowerPriority(priority)
                self._gangs[key] = judge_gang(self._snapshot, cluster, members, key, may_go)
            return self._gangs.get(key), occupants.unread

    def _with_gang(self, told: Explanation, key: GroupKey) -> tuple[Explanation, bool]:
        """The explanation of a pod with that of its gang, and whether it has one."""
        try:
            found, more = self.gang(key)
        except (RuleError, TooCostly):
            return told, True  # the explanation names what is malformed, or too costly, already
        unread = tuple(dict.fromkeys((*told.unread, *more)))
        if found is None or found.verdict == "runs":
            return replace(told, unread=unread), False
        waits = told.verdict == "waits" and found.verdict == "fits"
        summary = told.summary if waits else f"it {found.summary}"
        return (
            replace(
                told,
                verdict=told.verdict if waits else found.verdict,
                summary=summary,
                findings=(*found.findings, *told.findings),
                unread=unread,
            ),
            True,
        )

    def _seen(self) -> tuple[Occupants, Cluster]:
        if self._known is None:
            occupants = self._read()
            self._known = occupants, cluster_of(self._snapshot, occupants)
        return self._known


def room_finding(cluster: Cluster, asked: Asked) -> Finding | None:
    """Which pods of lower priority would have to end; None if nobody's end helps, or nobody has to."""
    if asked.pod is None:
        return None
    choice = best_room(cluster, asked, LowerPriority(priority_of(asked.pod)))
    if choice.kind == "waits":
        return Finding("ending", choice.text)
    if choice.kind != "room" or choice.room is None:
        return None
    units = choice.room.units
    who = ", ".join(map(str, units[:3])) + (f" and {len(units) - 3} more" if len(units) > 3 else "")
    message = f"it would fit on {choice.room.node} if {who}, of lower priority, ended"
    if choice.room.cost.violations:
        message += ", which a budget forbids now"
    metadata = asked.pod["metadata"]
    command = f"gpuctl room {metadata['name']} -n {metadata['namespace']}"
    return Finding("room", message, f"`{command}` shows who else could end")
