"""Explains a gang: pods of a PodGroup that the scheduler places together or not at all (KEP-4671)."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.cli.cluster import Object
from gpuctl.cli.output import some_of
from gpuctl.explain.findings import Explanation, Finding, Verdict, explanation
from gpuctl.explain.judge import judge
from gpuctl.explain.room import MayGo, Policy
from gpuctl.explain.snapshot import Snapshot
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.gang_places import Places, progress_of
from kubernetes_rules.preemption.gangs import best_gang_room, cannot_judge_gang, missing_members
from kubernetes_rules.preemption.units import (
    GroupKey,
    effective_priority,
    group_key,
    is_ending,
    least_of,
)

_MOST_BLOCKED, _MOST_REASONS, _MOST_NAMES = 3, 2, 8


def explain_gang(snapshot: Snapshot, key: GroupKey) -> Explanation | None:
    """How far the gang of a PodGroup gets, who is blocked, and what would help; worked out once.

    None if its pods are scheduled one by one, or it cannot be judged without all pods and PodGroups.
    ``runs``: no pod of it waits. Raises ApiError, RuleError for malformed objects, and TooCostly.
    """
    cluster, known = snapshot.cluster, snapshot.cluster.decisions
    if snapshot.groups is None or "pods" in snapshot.unread:
        return None
    if ("gang", key) not in known:
        known["gang", key] = _explained(snapshot, cluster, key)
    found: Explanation | None = known["gang", key]
    return found


def _explained(snapshot: Snapshot, cluster: Cluster, key: GroupKey) -> Explanation | None:
    group = cluster.groups.get(key)
    if group is None:
        message = f"the PodGroup {key[1]} does not exist"
        missing = Finding("group", message, "create it, or wait for its controller")
        return _told(key, "waits", f"waits for its group {key[1]}", [missing])
    least = least_of(group)
    if least is None:
        return None
    pods = [pod for pod in snapshot.pods if group_key(pod) == key]
    waiting = sorted(filter(_waits, pods), key=_in_turn)
    lacks = missing_members(cluster, key)
    if not waiting and not lacks:
        return _told(key, "runs", f"has its {least} pods or more on nodes")
    if len(waiting) < lacks:
        message = f"the group {key[1]} has {least - lacks + len(waiting)} of the {least} pods that it needs"
        more = Finding("gang", message, "create the others; none gets a node before")
        return _told(key, "waits", f"waits for more pods of its group {key[1]}", [more])
    priority = min(effective_priority(pod, cluster.groups) for pod in pods)
    may_go = MayGo(Policy.LOWER_PRIORITY, priority)
    return _judged(snapshot, waiting, key, max(1, lacks), may_go)


def _judged(
    snapshot: Snapshot, waiting: Sequence[Object], key: GroupKey, needed: int, may_go: MayGo
) -> Explanation:
    """What is said of a gang with enough pods; ``needed`` of those that wait have to be placed at once."""
    cluster = snapshot.cluster
    asked = [(pod, cluster.asked(pod)) for pod in waiting]
    members = [one for _, one in asked if isinstance(one, Asked)]
    progress = progress_of(cluster, members, needed, lambda one: _why(snapshot, cluster, one))
    count = min(len(progress.placed), needed)
    what = f"{count} of the {needed} pods that have to be placed at once find a place"
    if count == needed:
        return _told(key, "fits", f"can be placed with its group {key[1]}: {what}")
    unmade = [(pod, text) for pod, text in asked if isinstance(text, str)]
    blocked = [*unmade, *((one.pod or {}, text) for one, text in progress.blocked)]
    findings = [Finding("gang", f"{_name(pod)} is blocked: {text}") for pod, text in blocked[:_MOST_BLOCKED]]
    if len(blocked) > _MOST_BLOCKED:
        findings.append(Finding("gang", f"{len(blocked) - _MOST_BLOCKED} more pods of the group are blocked"))
    if progress.otherwise:
        findings.append(_otherwise(progress.otherwise))
    unjudged = cannot_judge_gang(cluster, members)
    if unjudged is not None:
        findings.append(Finding("gang", unjudged))
    elif len(members) >= needed and not progress.otherwise:
        findings[:0] = _room(cluster, members, needed, may_go)
    return _told(key, "waits", f"waits with its group {key[1]}: {what}", findings)


def _told(key: GroupKey, verdict: Verdict, summary: str, findings: Sequence[Finding] = ()) -> Explanation:
    about = {"metadata": {"namespace": key[0], "name": key[1]}}
    return explanation("PodGroup", about, verdict, f"it {summary}", findings)


def _otherwise(places: Places) -> Finding:
    where = some_of([f"{_name(one.pod or {})} on {node}" for one, node in places], _MOST_NAMES)
    return Finding(
        "gang-otherwise",
        f"all would fit with other nodes or devices: {where}",
        "the scheduler places one pod after the other, and moves none again: give the pods node selectors "
        "for these nodes, or create first those that fit on few devices",
    )


def _room(cluster: Cluster, members: Sequence[Asked], needed: int, may_go: MayGo) -> list[Finding]:
    """Who would have to end for all that are needed, or what helps if nobody has to."""
    choice = best_gang_room(cluster, members, needed, may_go)
    if choice.kind == "waits":
        return [Finding("ending", choice.text)]
    if choice.kind == "fits now":
        return [_otherwise(tuple((one, room.node) for one, room in choice.placed))]
    if choice.kind != "room":
        return []
    nodes = some_of(list(dict.fromkeys(room.node for _, room in choice.placed)), _MOST_NAMES)
    who = some_of(list(map(str, choice.units)), _MOST_BLOCKED)
    message = f"the gang would fit on {nodes} if {who}, of lower priority, ended"
    return [Finding("room", f"{message}{', which a budget forbids now' if choice.cost.violations else ''}")]


def _why(snapshot: Snapshot, cluster: Cluster, member: Asked) -> str:
    """What keeps the devices from a member, as the cluster is in the middle of placing its gang."""
    found = judge(snapshot, member, cluster.allocator)
    return "; ".join(one.message for one in found.findings[:_MOST_REASONS])


def _waits(pod: Object) -> bool:
    return not pod["spec"].get("nodeName") and not is_ending(pod)


def _in_turn(pod: Object) -> tuple[str, str]:
    """The scheduler's order of pods of the same priority, as far as the API says it.

    Go: PodGroupMemberPodsOrderingFunc in scheduler/framework/types.go.
    """
    return str(pod["metadata"].get("creationTimestamp") or ""), str(pod["metadata"]["name"])


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
