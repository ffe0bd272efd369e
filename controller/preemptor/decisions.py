"""Decides for which waiting pod which pods go, on a snapshot of the cluster. Remembers what cannot change.

An answer is valid until something changes that it may depend on, and it applies to all pods that ask for the
same. So thousands of waiting pods cost little. An answer that takes too long is worked out in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from controller.preemptor.kept import Fits, Kept, Placed, Rooms
from controller.preemptor.pending import Exempt, Surroundings, Waiting, named
from controller.preemptor.watch import Object, Stored
from driver.process.log import get_logger
from kubernetes_rules.cel.selector import TooCostly, answer_within
from kubernetes_rules.errors import RuleError
from kubernetes_rules.preemption.cluster import Asked, Cluster, is_allocated
from kubernetes_rules.preemption.units import Unit, can_be_evicted
from kubernetes_rules.preemption.victims import Choice, Victims, best_victims

DECISION_SECONDS, NODE_SECONDS, MOST_SECONDS = 0.25, 0.02, 20.0
"""The processor time for one decision, and as much more for each node, up to a limit.

A node takes 1 to 20 ms. Kubernetes accepts claims whose selectors take minutes.
"""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done for a pod: ``room`` to make, or in ``text`` why none is made.

    ``refused`` by a budget; ``unjudged`` if the rules cannot judge the pod; ``none`` if nobody's end helps,
    or nobody has to go. ``freed`` are the claims of the victims.
    """

    kind: Literal["room", "refused", "unjudged", "none"]
    text: str = ""
    placed: Placed | None = None
    victims: tuple[Object, ...] = ()
    freed: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class MayGo:
    """Whether a unit may go for a pod of this priority. ``stuck`` are the UIDs of pods that do not end."""

    priority: int
    exempt: Exempt
    stuck: frozenset[str]

    def __call__(self, unit: Unit) -> bool:
        """Whether the unit may go."""
        return (
            unit.priority < self.priority
            and can_be_evicted(unit)
            and not any(self.exempt.covers(pod) or pod["metadata"]["uid"] in self.stuck for pod in unit.pods)
        )


def nobody(_unit: Unit) -> bool:
    """Nobody may go."""
    return False


class Decisions:
    """The answers about one cluster, as it was at the last ``update``. Not thread-safe."""

    def __init__(self, exempt: Exempt) -> None:
        self._exempt = exempt
        self._moment: tuple[int, int] = -1, -1
        self._cluster: Cluster | None = None
        self._last: Cluster | None = None
        self._known: dict[str, tuple[tuple[int, int], Verdict]] = {}
        self._costly: set[str] = set()

    def update(self, stored: Stored, around: Surroundings, rooms: Rooms) -> None:
        """Answer about this moment from now on."""
        self._stored, self._around, self._rooms = stored, around, rooms
        moment = stored.version, rooms.version
        if moment != self._moment:
            self._moment, self._cluster = moment, None

    def known(self, waiting: Waiting) -> Verdict | None:
        """The last answer for this pod, or for one that asks for the same."""
        found = self._known.get(waiting.alike)
        return found[1] if found else None

    def is_due(self, waiting: Waiting) -> bool:
        """Whether there is no answer, or something has changed since then."""
        found = self._known.get(waiting.alike)
        return found is None or found[0] != self._moment or self.is_costly(waiting)

    def is_costly(self, waiting: Waiting) -> bool:
        """Whether the last decision took too long. The next one goes on with what was found until then."""
        return waiting.alike in self._costly

    def decide(self, waiting: Waiting) -> Verdict:
        """The answer for this moment. A room is not remembered: only one of several such pods gets it."""
        self._costly.discard(waiting.alike)
        try:
            verdict = self._decided(waiting)
        except TooCostly as error:
            self._costly.add(waiting.alike)
            most = f", most of it the selector {error.expression[:200]!r}" if error.expression else ""
            verdict = Verdict("unjudged", f"{error}{most}; it is worked out in steps, after other pods")
        except RuleError as error:
            # The message may name a claim of somebody else.
            _log.warning("cannot decide", pod=str(waiting), error=error.what)
            verdict = Verdict(
                "unjudged", "an object of the cluster is malformed; the preemptor's log names it"
            )
        if verdict.kind != "room":
            self._known[waiting.alike] = self._moment, verdict
        return verdict

    def _decided(self, waiting: Waiting) -> Verdict:
        if self._cluster is None:
            self._cluster = self._seen(self._rooms.all())
        may_go = MayGo(waiting.priority, self._exempt, self._rooms.stuck())
        asked = self._around.asked(waiting.pod)
        if isinstance(asked, str):
            return Verdict("none", asked)
        choice = _choice_in_time(self._cluster, asked, may_go)
        if choice.kind == "unjudged":
            # Without somebody who could go there is nothing to be judged, and nothing to be said.
            matters = any(may_go(unit) for units in self._cluster.units.on_node.values() for unit in units)
            return Verdict("unjudged" if matters else "none", choice.text)
        found = choice.victims
        if choice.kind != "victims" or found is None:
            return Verdict("none", choice.text)
        victims = tuple(dict(pod) for unit in found.units for pod in unit.pods)
        if found.cost.violations:
            names = named(victims, waiting.pod["metadata"]["namespace"])
            return Verdict("refused", f"a budget protects a pod among {names} on node {found.node}")
        freed = tuple(dict(claim) for unit in found.units for claim in unit.claims)
        placed = _placed(waiting.pod, asked, self._cluster.nodes[found.node], found)
        return Verdict("room", choice.text, placed, victims, freed)

    def fits(self, kept: Kept, pods: Mapping[str, Object]) -> Fits:
        """Whether the pod of a room fits without anybody's end; ``pods`` by UID."""
        asked = self._around.asked(pods[kept.waiting.uid])
        if isinstance(asked, str):
            return "no"
        # The scheduler writes the devices into the claims before it gives the pod its node.
        if asked.claims and all(map(is_allocated, asked.claims)):
            return "now"
        try:
            cluster = self._seen(one for one in self._rooms.all() if one is not kept)
            self._cluster = None
            kind = _choice_in_time(cluster, asked, nobody).kind
        except (RuleError, TooCostly):
            return "no"
        return "now" if kind == "fits now" else "soon" if kind == "waits" else "no"

    def forget(self, waiting: Iterable[Waiting]) -> None:
        """Forget the answers about pods that are not among these."""
        alike = {one.alike for one in waiting}
        self._known = {key: one for key, one in self._known.items() if key in alike}
        self._costly &= alike

    def _seen(self, rooms: Iterable[Kept]) -> Cluster:
        """The cluster, in which these rooms are taken already."""
        claims: dict[str, Object] = {one["metadata"]["uid"]: one for one in self._stored["claims"]}
        for kept in rooms:
            for claim in kept.placed.claims:
                # The scheduler may have just given it other devices.
                if not is_allocated(claims.get(claim["metadata"]["uid"], {})):
                    claims[claim["metadata"]["uid"]] = claim
        # What has not changed since the last snapshot is taken from it, so that one cannot be used any more.
        self._last = Cluster(
            nodes=self._stored["nodes"],
            slices=self._stored["slices"],
            classes=self._stored["classes"],
            claims=list(claims.values()),
            pods=self._rooms.overlaid(self._stored["pods"]),
            budgets=self._stored["budgets"],
            taint_rules=self._stored["taint_rules"],
            before=self._last,
        )
        return self._last


def _choice_in_time(cluster: Cluster, asked: Asked, may_go: Callable[[Unit], bool]) -> Choice:
    """What is best. Raises TooCostly, but what was found on nodes and for selectors is remembered."""
    with answer_within(min(DECISION_SECONDS + NODE_SECONDS * len(cluster.nodes), MOST_SECONDS)):
        return best_victims(cluster, asked, may_go)


def _placed(pod: Object, asked: Asked, node: Object, found: Victims) -> Placed:
    """The pod on its node, and its claims as if they had the devices."""
    pairs = zip(asked.on(node), found.allocations, strict=True)
    claims = tuple({**claim, "status": {"allocation": allocation}} for claim, allocation in pairs)
    return Placed(pod, found.node, claims)
