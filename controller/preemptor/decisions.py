"""Decides for which waiting pod which pods go, on a snapshot of the cluster. Remembers what cannot change.

An answer is valid until something changes that it may depend on, and it applies to all pods that ask for the
same. So thousands of waiting pods cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from controller.preemptor.kept import Kept, Rooms
from controller.preemptor.pending import Exempt, Waiting, name_of
from controller.preemptor.watch import Object, Stored
from kubernetes_rules.preemption.choose import Choice, Cluster, best_room
from kubernetes_rules.preemption.units import Unit

Json = Mapping[str, Any]
_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs from a file; the API server refuses to evict them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done for a pod: ``room`` to make, or in ``text`` why none is made.

    ``refused`` by a budget; ``unjudged`` if the rules cannot judge the pod; ``none`` if nobody's end helps, or
    nobody has to go.
    """

    kind: Literal["room", "refused", "unjudged", "none"]
    text: str = ""
    node: str = ""
    victims: tuple[Object, ...] = ()
    allocations: tuple[Json, ...] = ()


class Decisions:
    """The answers about one cluster, as it was at the last ``update``. Not thread-safe."""

    def __init__(self, exempt: Exempt) -> None:
        self._exempt = exempt
        self._moment: tuple[int, int] = -1, -1
        self._cluster: Cluster | None = None
        self._known: dict[str, tuple[tuple[int, int], Verdict]] = {}

    def update(self, stored: Stored, rooms: Rooms) -> None:
        """Answer about this moment from now on."""
        self._stored, self._rooms = stored, rooms
        moment = stored.version, rooms.version
        if moment != self._moment:
            self._moment, self._cluster = moment, None

    def is_due(self, waiting: Waiting) -> bool:
        """Whether the answer may be another one by now."""
        known = self._known.get(waiting.alike)
        return known is None or known[0] != self._moment

    def was_asked(self, waiting: Waiting) -> bool:
        """Whether there was an answer before, for this pod or one that asks for the same."""
        return waiting.alike in self._known

    def known(self, waiting: Waiting) -> Verdict | None:
        """The last answer."""
        found = self._known.get(waiting.alike)
        return found[1] if found else None

    def decide(self, waiting: Waiting) -> Verdict:
        """The answer for this moment. A room is not remembered: only one of several such pods gets it."""
        if self._cluster is None:
            self._cluster = self._seen(self._rooms.all())
        choice = best_room(
            self._cluster, waiting.pod, waiting.claims, lambda unit: self._may_go(unit, waiting.priority)
        )
        verdict = self._verdict(choice, waiting)
        if verdict.kind != "room":
            self._known[waiting.alike] = self._moment, verdict
        return verdict

    def fits(self, kept: Kept) -> Literal["now", "soon", "no"]:
        """Whether the pod of a room fits now without anybody's end, or once those who are ending have ended."""
        cluster = self._seen(one for one in self._rooms.all() if one is not kept)
        choice = best_room(cluster, kept.waiting.pod, kept.waiting.claims, lambda _unit: False)
        match choice.why:
            case "fits now":
                return "now"
            case "waits":
                return "soon"
        return "no"

    def forget(self, waiting: Iterable[Waiting]) -> None:
        """Forget the answers about pods that are not among these."""
        alike = {one.alike for one in waiting}
        self._known = {key: one for key, one in self._known.items() if key in alike}

    def _seen(self, rooms: Iterable[Kept]) -> Cluster:
        """The cluster, in which these rooms are taken already."""
        taken = {}
        for kept in rooms:
            for claim in kept.claims():
                taken[claim["metadata"]["uid"]] = claim
        claims = [one for one in self._stored["claims"] if one["metadata"]["uid"] not in taken]
        return Cluster(
            nodes=self._stored["nodes"],
            slices=self._stored["slices"],
            classes=self._stored["classes"],
            claims=[*claims, *taken.values()],
            pods=self._rooms.overlaid(self._stored["pods"]),
            budgets=self._stored["budgets"],
            taint_rules=self._stored["taint_rules"],
            groups=self._stored["groups"],
        )

    def _may_go(self, unit: Unit, priority: int) -> bool:
        return unit.priority < priority and not any(
            self._exempt.covers(pod)
            or self._rooms.is_stuck(pod)
            or _MIRROR in (pod["metadata"].get("annotations") or {})
            for pod in unit.pods
        )

    def _verdict(self, choice: Choice, waiting: Waiting) -> Verdict:
        if choice.room is None:
            return Verdict("unjudged" if choice.why == "unjudged" else "none", choice.text)
        victims = tuple(dict(pod) for unit in choice.room.units for pod in unit.pods)
        if choice.room.cost.violations:
            names = ", ".join(sorted(map(name_of, victims)))
            return Verdict("refused", f"on node {choice.node} a budget protects one of {names}")
        return Verdict("room", choice.text, choice.node, victims, tuple(choice.room.allocations))
