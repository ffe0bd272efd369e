"""Explains a gang: pods of a PodGroup that the scheduler places together or not at all (KEP-4671)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuctl.cli.output import some_of
from gpuctl.explain.findings import Finding
from gpuctl.explain.judge import judge
from gpuctl.explain.snapshot import Object, Snapshot
from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.choose import MayGo
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.gang_places import Places, progress_of
from kubernetes_rules.preemption.gangs import best_gang_room, cannot_judge_gang, missing_members
from kubernetes_rules.preemption.units import GroupKey, is_ending, least_of

_MOST_BLOCKED, _MOST_REASONS, _MOST_NAMES = 3, 2, 8


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """What is said of a gang; ``runs``: no pod of it waits. The summary begins with its verb."""

    verdict: Literal["runs", "fits", "waits"]
    summary: str
    findings: tuple[Finding, ...] = ()


def judge_gang(
    snapshot: Snapshot, cluster: Cluster, pods: Sequence[Object], key: GroupKey, may_go: MayGo
) -> GangAnswer | None:
    """How far the gang of a PodGroup gets, who is blocked, and what would help.

    None if the pods of the group are scheduled one by one. ``pods`` are its pods that have not ended. Units
    that ``may_go`` allows may make room. Raises RuleError for malformed objects, and TooCostly.
    """
    name, group = key[1], cluster.groups.get(key)
    if group is None:
        missing = Finding(
            "group", f"the PodGroup {name} does not exist", "create it, or wait for its controller"
        )
        return GangAnswer("waits", f"waits for its group {name}", (missing,))
    least = least_of(group)
    if least is None:
        return None
    waiting = sorted(filter(_waits, pods), key=_in_turn)
    lacks = missing_members(cluster, key)
    if not waiting and not lacks:
        return GangAnswer("runs", f"has its {least} pods or more on nodes")
    if len(waiting) < lacks:
        there = f"{least - lacks + len(waiting)} of the {least} pods that it needs"
        more = Finding("gang", f"the group {name} has {there}", "create the others; none gets a node before")
        return GangAnswer("waits", f"waits for more pods of its group {name}", (more,))
    return _judged(snapshot, cluster, waiting, key, max(1, lacks), may_go)


def _judged(
    snapshot: Snapshot,
    cluster: Cluster,
    waiting: Sequence[Object],
    key: GroupKey,
    needed: int,
    may_go: MayGo,
) -> GangAnswer:
    """What is said of a gang with enough pods; ``needed`` of those that wait have to be placed at once."""
    asked = [(pod, cluster.asked(pod)) for pod in waiting]
    members = [one for _, one in asked if isinstance(one, Asked)]
    progress = progress_of(cluster, members, needed, lambda one: _why(snapshot, cluster, one))
    count = min(len(progress.placed), needed)
    what = f"{count} of the {needed} pods that have to be placed at once find a place"
    if count == needed:
        return GangAnswer("fits", f"can be placed with its group {key[1]}: {what}")
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
    return GangAnswer("waits", f"waits with its group {key[1]}: {what}", tuple(findings))


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
