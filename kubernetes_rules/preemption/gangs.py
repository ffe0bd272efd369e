"""Makes room for a gang: pods of a PodGroup that the scheduler places together or not at all (KEP-4671).

The members are placed one after the other, each where it costs least beside those before. If one finds no
place, it is tried again as the first. That finds a set of victims that is enough, not always the cheapest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

from kubernetes_rules.preemption.asked import Asked
from kubernetes_rules.preemption.choose import Kind, MayGo, Tried, cannot_judge, in_doubt, kind_of, try_node
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.pod_fit import added_up, forbidden_domains, pod_amounts_on
from kubernetes_rules.preemption.preference import NOBODY, Cost, cost_of, importance
from kubernetes_rules.preemption.room import Room, within, without
from kubernetes_rules.preemption.units import (
    GroupKey,
    Unit,
    group_key,
    is_ending,
    least_of,
    node_of,
    pod_name,
)

Json = Mapping[str, Any]
Object = dict[str, Any]

_UNJUDGED = {
    "schedulingConstraints": "the topology",
    "resourceClaims": "the claims",
    "parentCompositePodGroupName": "the composite group",
}
"""Fields of a PodGroup's spec that need feature gates of their own."""


@dataclass(frozen=True, slots=True)
class GangChoice:
    """What was decided for a gang; ``kind`` as in Choice.

    ``placed`` has each member with its room, which has the node and the allocations, and only the units that
    have to go beside those of members before. ``units`` are all that have to go.
    """

    kind: Kind
    text: str
    placed: tuple[tuple[Asked, Room], ...] = ()
    units: tuple[Unit, ...] = ()
    cost: Cost = NOBODY


def missing_members(cluster: Cluster, key: GroupKey) -> int:
    """How many pods of a group still have to be placed together; 0 without a gang."""
    group = cluster.groups.get(key)
    least = least_of(group) if group is not None else None
    there = (pod for pods in cluster.units.there.values() for pod in pods if not is_ending(pod))
    return max(0, (least or 0) - sum(group_key(pod) == key for pod in there))


def cannot_judge_gang(cluster: Cluster, members: Sequence[Asked]) -> str | None:
    """What a gang or one of its members has that these rules cannot judge, as a sentence."""
    for one in members:
        group = cluster.groups.get(group_key(one.pod) or ("", "")) if one.pod is not None else None
        own = cannot_judge(one)
        if own is not None:
            return f"{_name(one)}: {own}"
        for field, what in _UNJUDGED.items():
            if group is not None and group["spec"].get(field):
                return f"these rules cannot judge {what} of the group {group['metadata']['name']}"
    return None


def best_gang_room(cluster: Cluster, members: Sequence[Asked], needed: int, may_go: MayGo) -> GangChoice:
    """What has to happen until ``needed`` of the members, which wait, can run at once."""
    own = cannot_judge_gang(cluster, members)
    if own is not None:
        return GangChoice("unjudged", own)
    if len(members) < needed:
        return GangChoice("unjudged", f"only {len(members)} of the {needed} pods that it lacks are waiting")
    with within(cluster.allocator, cluster.units.ending):
        placed = _placed(cluster, members, needed, nobody, with_ending=True)
    if not isinstance(placed, Blocked):
        return GangChoice("fits now", "its devices are free", placed)
    placed = _placed(cluster, members, needed, nobody)
    if not isinstance(placed, Blocked):
        return GangChoice("waits", "it fits once pods that are being deleted have ended", placed)
    placed = _placed(cluster, members, needed, may_go)
    if isinstance(placed, Blocked):
        return GangChoice(placed.kind, placed.text)
    units = _needed_units(cluster, placed)
    nodes = ", ".join(dict.fromkeys(room.node for _, room in placed))
    text = f"it would fit on {nodes} if {', '.join(map(str, units))} ended"
    return GangChoice("room", text, placed, units, cost_of(units, cluster.budgets))


def _uid(claim: Object) -> str:
    return str(claim["metadata"]["uid"])


def _name(member: Asked) -> str:
    return pod_name(member.pod) if member.pod is not None else "its claim"


_NO_ROOM = "there is no room for it beside the others"

_Placed = tuple[tuple[Asked, Room], ...]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The member that finds no place beside the others, and why."""

    kind: Kind
    text: str
    member: Asked


def nobody(_: Unit) -> bool:
    """Nobody may go."""
    return False


def _placed(
    cluster: Cluster, members: Sequence[Asked], needed: int, may_go: MayGo, *, with_ending: bool = False
) -> _Placed | Blocked:
    """The members in an order in which all that are needed find a place, each with its room."""
    order = list(members)
    tried_first = set()
    while True:
        with Placing(cluster, may_go, with_ending=with_ending) as placing:
            blocked = next((found for one in order[:needed] if (found := placing.place(one))), None)
            if blocked is None:
                return tuple(placing.placed)
        if id(blocked.member) in tried_first:
            return blocked
        tried_first.add(id(blocked.member))
        order.remove(blocked.member)
        # If others can take its place it comes last, else first.
        order.insert(len(order) if len(order) >= needed else 0, blocked.member)


class Placing:
    """Places members one after the other, each where it costs least; later the allocator is as before."""

    def __init__(self, cluster: Cluster, may_go: MayGo, *, with_ending: bool = False) -> None:
        self._cluster = cluster
        self._may_go = may_go
        self._more: dict[str, Mapping[str, int]] = {
            name: cluster.used_by_ending(name) for name in (cluster.nodes if with_ending else ())
        }
        self._gone: set[Unit] = set()
        self._allocated: dict[str, Object] = {}
        self._tried: dict[Hashable, dict[str, Tried]] = {}
        self._stack = ExitStack()
        self.placed: list[tuple[Asked, Room]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place(self, member: Asked, only: str | None = None) -> Blocked | None:
        """Place one more member where it costs least, or on one node; None, or why that cannot be done."""
        # A claim that several members share has its devices once the first is placed.
        own = replace(member, claims=tuple(self._allocated.get(_uid(one), one) for one in member.claims))
        found = self._on(own, self._cluster.nodes if only is None else (only,))
        rooms = [one.room for one in found if one.room is not None]
        doubtful = in_doubt(found)
        if not rooms or (doubtful is not None and doubtful.gives_up):
            lack = next((one.text for one in found if one.kind is not None and one.text), _NO_ROOM)
            text = doubtful.text if doubtful else lack
            return Blocked("unjudged" if doubtful else "no victims", f"{_name(member)}: {text}", member)
        best = min(rooms, key=lambda room: room.cost)
        self._take(own, best)
        self.placed.append((member, best))
        return None

    def _on(self, member: Asked, nodes: Iterable[str]) -> list[Tried]:
        known = self._tried.setdefault(kind_of(self._cluster, member), {})
        domains = forbidden_domains(member.pod, self._cluster.repelling) if member.pod is not None else ()
        for name in nodes:
            if name not in known:
                node, more = self._cluster.nodes[name], self._more.get(name)
                known[name] = try_node(
                    self._cluster, member, self._is_victim, node, domains, more, in_gang=True
                )
        return [known[name] for name in nodes]

    def _is_victim(self, unit: Unit) -> bool:
        return unit not in self._gone and self._may_go(unit)

    def let_go(self, units: Sequence[Unit]) -> None:
        """Count these units as gone."""
        free = [claim for unit in units for claim in unit.claims]
        self._stack.enter_context(without(self._cluster.allocator, free))
        self._gone |= set(units)
        for pod in (pod for unit in units for pod in unit.pods):
            self._use(node_of(pod), pod, -1)

    def _use(self, node: str, pod: Object | Json, sign: int) -> None:
        signed = {resource: sign * amount for resource, amount in pod_amounts_on(pod).items()}
        self._more[node] = added_up((self._more.get(node, {}), signed))
        for known in self._tried.values():
            known.pop(node, None)

    def _take(self, member: Asked, room: Room) -> None:
        node = self._cluster.nodes[room.node]
        claims = [
            {**claim, "status": {**(claim.get("status") or {}), "allocation": allocation}}
            for claim, allocation in zip(member.on(node), room.allocations, strict=True)
        ]
        self._allocated |= {_uid(claim): claim for claim in claims}
        self.let_go(room.units)
        self._stack.enter_context(within(self._cluster.allocator, claims))
        if member.pod is not None:
            self._use(room.node, member.pod, 1)


def _needed_units(cluster: Cluster, placed: _Placed) -> tuple[Unit, ...]:
    """The units without which the members do not fit where they were placed: the most important may stay."""
    going = [unit for _, room in placed for unit in room.units]
    for unit in sorted(going, key=importance, reverse=True):
        others = [one for one in going if one is not unit]
        with Placing(cluster, nobody) as placing:
            placing.let_go(others)
            if all(placing.place(one, room.node) is None for one, room in placed):
                going = others
    return tuple(going)
