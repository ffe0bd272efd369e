"""Finds out how far a gang that waits gets: which members find a place, which do not, and whether all could.

kube-scheduler places the members one after the other, and moves none of them again when a later one finds no
place. So a gang may wait although all of it would fit. (Go: podGroupSchedulingDefaultAlgorithm in
scheduler/schedule_one_podgroup.go.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.asked import Asked, is_allocated
from kubernetes_rules.preemption.choose import kind_of, try_node
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.gangs import Placing, nobody
from kubernetes_rules.preemption.pod_fit import added_up, forbidden_domains, lacking, pod_amounts_on
from kubernetes_rules.preemption.room import within
from kubernetes_rules.preemption.units import pod_name

MOST_TRIES, MOST_MEMBERS = 500, 100
"""The search for places of all members gives up after so many tries, and is left out for larger gangs."""

Places = tuple[tuple[Asked, str], ...]
"""Members, each with its node."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the members get one after the other: each with its node, or with what is in its way.

    ``otherwise`` is where all that are needed fit if their nodes and devices are chosen together. It is empty
    if that is not necessary, or if no such places were found.
    """

    placed: Places
    blocked: Places
    otherwise: Places = ()


def progress_of(
    cluster: Cluster, members: Sequence[Asked], needed: int, why: Callable[[Asked], str]
) -> Progress:
    """Place the members of a gang in this order, of which at least ``needed`` have to be placed at once.

    ``why`` says why a member finds no place, while those before it have their devices; if it says nothing, it
    lacks something else than devices.
    """
    blocked: list[tuple[Asked, str]] = []
    told: dict[Hashable, str] = {}
    with within(cluster.allocator, cluster.units.ending):
        with Placing(cluster, nobody, with_ending=True) as placing:
            for one in members:
                found = placing.place(one)
                if found is not None:
                    kind = kind_of(cluster, one)
                    if kind not in told:
                        told[kind] = why(one) or found.text.removeprefix(f"{pod_name(one.pod or {})}: ")
                    blocked.append((one, told[kind]))
            placed = tuple((member, room.node) for member, room in placing.placed)
        otherwise = _Together(cluster, members, needed).places() if len(placed) < needed else ()
    return Progress(placed, tuple(blocked), otherwise)


class _Together:
    """Searches places for a gang in which the devices on each node are chosen for all its members there.

    What is in use now stays in use. The members that fit on the fewest nodes come first; of those that ask
    for the same, the nodes do not go back.
    """

    def __init__(self, cluster: Cluster, members: Sequence[Asked], needed: int) -> None:
        self._cluster = cluster
        self._needed = needed
        self._nodes: dict[Hashable, list[str]] = {}
        kinds = [(kind_of(cluster, one), one) for one in members]
        for kind, one in kinds:
            if kind not in self._nodes:
                self._nodes[kind] = self._possible(one)
        first = {kind: position for position, kind in enumerate(self._nodes)}
        self._order = sorted(kinds, key=lambda pair: (len(self._nodes[pair[0]]), first[pair[0]]))
        self._there: dict[str, list[Asked]] = {}
        self._tries = 0

    def places(self) -> Places:
        """The first places that were found; none if there are none, or the search became too long."""
        claims = [str(claim["metadata"]["uid"]) for _, one in self._order for claim in one.claims]
        # A claim that members share binds them to what one node reaches.
        if len(self._order) > MOST_MEMBERS or len(claims) > len(set(claims)):
            return ()
        if not self._place_from(0, 0, self._needed):
            return ()
        return tuple((one, name) for name, members in self._there.items() for one in members)

    def _possible(self, member: Asked) -> list[str]:
        """The nodes on which a member fits alone."""
        cluster = self._cluster
        domains = forbidden_domains(member.pod, cluster.repelling) if member.pod is not None else ()
        return [
            name
            for name, node in cluster.nodes.items()
            if try_node(
                cluster, member, nobody, node, domains, cluster.used_by_ending(name), in_gang=True
            ).room
        ]

    def _place_from(self, at: int, first_node: int, missing: int) -> bool:
        """Place so many of the members from this position on."""
        if missing == 0:
            return True
        if len(self._order) - at < missing:
            return False
        kind, member = self._order[at]
        is_like_next = at + 1 < len(self._order) and self._order[at + 1][0] == kind
        for position in range(first_node, len(self._nodes[kind])):
            if self._tries >= MOST_TRIES:
                return False
            self._tries += 1
            name = self._nodes[kind][position]
            there = self._there.setdefault(name, [])
            there.append(member)
            if self._fits(name, there) and self._place_from(
                at + 1, position if is_like_next else 0, missing - 1
            ):
                return True
            there.pop()
        return self._place_from(at + 1, first_node if is_like_next else 0, missing)

    def _fits(self, name: str, members: Sequence[Asked]) -> bool:
        cluster, node = self._cluster, self._cluster.nodes[name]
        amounts = added_up(pod_amounts_on(one.pod) for one in members if one.pod is not None)
        if lacking(amounts, node, added_up((cluster.used(name), cluster.used_by_ending(name)))):
            return False
        claims = [claim for one in members for claim in one.on(node) if not is_allocated(claim)]
        try:
            return cluster.allocator.allocate(node, claims) is not None
        except RuleError:
            return False
