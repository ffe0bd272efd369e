"""Finds the least important pods whose end would let a pod have its devices: the victims, and their node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.cel.selector import check_time
from kubernetes_rules.errors import AllocationFailed, PoolInvalid, RuleError
from kubernetes_rules.preemption.cluster import (
    Asked,
    Cluster,
    Domain,
    added_up,
    closed,
    forbidden_domains,
    is_allocated,
    is_in,
    lacking,
    pod_amounts_on,
    unjudged,
)
from kubernetes_rules.preemption.held_by_units import HeldByUnits, indexes
from kubernetes_rules.preemption.search import Search
from kubernetes_rules.preemption.units import Budgets, Cost, Unit, cost_of, importance, node_of

Json = Mapping[str, Any]
Object = dict[str, Any]
Amounts = Mapping[str, int]

MayGo = Callable[[Unit], bool]
"""Whether a unit may go. Decisions are looked up by it, so it has to be equal if it means the same."""

Kind = Literal["victims", "fits now", "waits", "unjudged", "never", "no victims"]

MOST_STEPS = 4_000
"""Devices and units tried before the search on a node is given up."""

_MOST_KINDS = 256
"""What was found on nodes is kept for this many kinds of pods."""


@dataclass(frozen=True, slots=True)
class Victims:
    """Units on a node whose end lets claims fit there.

    ``allocations`` is ``status.allocation`` of each claim then. If not ``is_exact``, the search was given up:
    no unit can be left out, but a set that costs less may exist.
    """

    node: str
    units: tuple[Unit, ...]
    cost: Cost
    allocations: tuple[Object, ...]
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided for a pod, as a sentence in ``text``.

    ``victims``: they have to go. ``fits now``: nobody has to. ``waits``: nobody has to, it fits once pods
    that are being deleted have ended. ``unjudged``: these rules cannot say. ``never``: no node could run it,
    whoever went. ``no victims``: the end of nobody that may go helps. With the first three ``victims`` says
    where the pod fits.
    """

    kind: Kind
    text: str
    victims: Victims | None = None


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was found on one node; ``kind`` is None if there is nothing to say but why the node is closed.

    ``gives_up``: the scheduler gives up the pod at this node, whatever other nodes have.
    """

    kind: Kind | None
    text: str = ""
    victims: Victims | None = None
    gives_up: bool = False


def best_victims(cluster: Cluster, asked: Asked, may_go: MayGo) -> Choice:
    """What has to happen until the pod can run, at the least cost; a claim alone, without a pod, too."""
    own = unjudged(asked.pod) if asked.pod is not None else ()
    if own:
        return Choice("unjudged", f"these rules cannot judge {', '.join(own)}")
    key = _kind_of(cluster, asked), may_go
    known: Choice | None = cluster.decisions.get(key)
    if known is None:
        known = cluster.decisions[key] = _decide(_on_all(cluster, asked, may_go))
    return known


def victims_on_nodes(cluster: Cluster, asked: Asked, may_go: MayGo) -> list[Victims]:
    """The best victims on each node that has some, the cheapest first; where nobody has to go is first."""
    found = [one.victims for one in _on_all(cluster, asked, may_go) if one.victims]
    return sorted(found, key=lambda one: one.cost)


def _decide(found: Sequence[_Tried]) -> Choice:
    for kind in ("fits now", "waits"):
        for one in found:
            if one.kind == kind:
                return Choice(one.kind, one.text, one.victims)
    with_victims = [one.victims for one in found if one.victims is not None]
    doubtful = [one for one in found if one.kind == "unjudged"]
    # A node at which the scheduler gives up keeps others from being chosen.
    first = max(doubtful, key=lambda one: one.gives_up, default=None)
    if first is not None and (first.gives_up or not with_victims):
        return Choice("unjudged", first.text)
    if with_victims:
        best = min(with_victims, key=lambda one: one.cost)
        text = f"it would fit on {best.node} if {', '.join(map(str, best.units))} ended"
        return Choice("victims", text, best)
    open_to = [one for one in found if one.kind is not None]
    if not any(one.kind == "no victims" for one in open_to):
        return Choice("never", _never(found))
    nodes = f"any of {len(open_to)} nodes" if len(open_to) > 1 else "the one node that could run it"
    nobody = f"nobody that may go makes room for it on {nodes}"
    return Choice("no victims", next((one.text for one in open_to if one.text), nobody))


def _never(found: Sequence[_Tried]) -> str:
    reasons = Counter(one.text for one in found if one.text)
    told = "; ".join(f"{count}: {text}" for text, count in reasons.most_common(3))
    return f"no node could run it, whoever ended{f' ({told})' if told else ''}"


def _on_all(cluster: Cluster, asked: Asked, may_go: MayGo) -> list[_Tried]:
    """What is found on each node."""
    key = _kind_of(cluster, asked), may_go
    if key not in cluster.tried and len(cluster.tried) >= _MOST_KINDS:
        cluster.tried.clear()
    known = cluster.tried.setdefault(key, {})
    domains = forbidden_domains(asked.pod, cluster.repelling) if asked.pod is not None else frozenset()
    found = []
    for name, node in cluster.nodes.items():
        state, before = known.get(name, (None, None))
        if before is None or state is not cluster.states[name]:
            before = _try_node(cluster, asked, may_go, node, domains)
            known[name] = cluster.states[name], before
        found.append(before)
    return found


def _try_node(
    cluster: Cluster, asked: Asked, may_go: MayGo, node: Object, domains: Iterable[Domain]
) -> _Tried:
    """What is found on one node; ``domains`` are where other pods keep the pod away. Raises TooCostly."""
    name = str(node["metadata"]["name"])
    check_time()
    try:
        why = closed(asked.pod, node, asked.claims) or asked.missing_on(node)
        if why is not None:
            return _Tried(None, why)
        wanted = asked.on(node)
        if not wanted:
            return _Tried(None, "it needs no devices of claims there")
        if is_in(node, domains):
            return _Tried("unjudged", f"the anti-affinity of other pods may keep it away from {name}")
        return _try_open(cluster, asked, may_go, node, wanted)
    except PoolInvalid as error:
        return _Tried("unjudged", error.what)
    except RuleError as error:
        return _Tried("unjudged", f"{name}: {error.what}", gives_up=True)


def _try_open(
    cluster: Cluster, asked: Asked, may_go: MayGo, node: Object, wanted: Sequence[Object]
) -> _Tried:
    name = str(node["metadata"]["name"])
    amounts = pod_amounts_on(asked.pod) if asked.pod is not None else {}
    used = cluster.used(name)
    lacks = lacking(amounts, node, used)
    if lacks and cluster.allocator.allocate(node, wanted) is not None:
        without = ", ".join(sorted(lacks))
        return _Tried("no victims", f"its devices are free on {name}, but it lacks {without}")
    units = [unit for unit in cluster.units.on_node.get(name, ()) if unit.claims and may_go(unit)]
    frees = [_frees(unit, name, lacks) for unit in units] if lacks else ()
    found = cheapest_victims(cluster.allocator, node, wanted, units, cluster.budgets, lacks, frees)
    if found is None:
        empty = cluster.allocator.with_claims(one for one in asked.claims if is_allocated(one))
        if lacking(amounts, node, {}) or empty.allocate(node, wanted) is None:
            return _Tried(None, "it does not have as much")
        return _Tried("no victims")
    if found.units:
        return _Tried("victims", victims=found)
    used = added_up((used, cluster.used_by_ending(name)))
    with _within(cluster.allocator, cluster.units.ending):
        fits = not lacking(amounts, node, used) and cluster.allocator.allocate(node, wanted) is not None
    if fits:
        return _Tried("fits now", f"its devices are free on {name}", found)
    return _Tried("waits", f"it fits on {name} once pods that are being deleted have ended", found)


def _frees(unit: Unit, node: str, lacks: Iterable[str]) -> dict[str, int]:
    """What a unit frees on a node of the resources that are lacking."""
    freed = added_up(pod_amounts_on(pod) for pod in unit.pods if node_of(pod) == node)
    return {name: freed[name] for name in lacks if name in freed}


def _kind_of(cluster: Cluster, asked: Asked) -> Hashable:
    """Equal for pods that ask for the same: all that decides where one fits."""
    claims = tuple(
        str(one["metadata"]["uid"]) if is_allocated(one) else repr(one["spec"]) for one in asked.claims
    )
    if asked.pod is None:
        return claims
    spec = asked.pod["spec"]
    containers = [
        (one.get("name"), one.get("resources"), one.get("restartPolicy"))
        for listed in ("initContainers", "containers")
        for one in (listed, *(spec.get(listed) or ()))
        if isinstance(one, dict)
    ]
    deciding = [
        spec.get(name) for name in ("nodeSelector", "affinity", "tolerations", "overhead", "resources")
    ]
    return claims, repr((deciding, containers)), forbidden_domains(asked.pod, cluster.repelling)


def cheapest_victims(
    allocator: Allocator,
    node: Json,
    wanted: Sequence[Json],
    units: Sequence[Unit],
    budgets: Budgets,
    lacks: Amounts | None = None,
    frees: Sequence[Amounts] = (),
) -> Victims | None:
    """The units that cost least among those whose end lets the claims fit on a node; None if none do.

    ``wanted`` have no devices yet. ``units`` are those that may go; the ``allocator`` has everything that is
    allocated, and has it again afterwards. ``lacks`` is what the pod lacks of the node's other resources, and
    ``frees`` what each unit frees of them. If nobody has to go, they have no units.
    Raises AllocationFailed as Allocator.allocate does, but not for a pool that is invalid.
    """
    fit = _Fit(allocator, node, wanted, units, lacks or {}, frees)
    everyone = (1 << len(units)) - 1
    now = fit.allocations(0)
    if now is not None:
        return fit.victims(0, now, budgets)
    at_most = fit.allocations(everyone)
    if at_most is None:
        return None
    view = allocator.view(node)
    held = HeldByUnits(allocator, view, units, budgets, frees)
    search = Search(held, allocator.requested(view, wanted), allocator.selectors, lacks or {}, MOST_STEPS)
    is_exact = search.run()
    found = None if search.best is None else fit.if_they_fit(search.best)
    if search.best is None or found is None:
        return fit.victims(*_without_spare(fit, everyone, at_most), budgets, is_exact=False)
    if not is_exact:
        return fit.victims(*_without_spare(fit, search.best, found), budgets, is_exact=False)
    return fit.victims(search.best, found, budgets)


class _Fit:
    """Whether the claims fit once some units have gone, by Kubernetes' own rules for allocation."""

    def __init__(
        self,
        allocator: Allocator,
        node: Json,
        wanted: Sequence[Json],
        units: Sequence[Unit],
        lacks: Amounts,
        frees: Sequence[Amounts],
    ) -> None:
        self._allocator = allocator
        self._node = node
        self._wanted = wanted
        self.units = units
        self._lacks = lacks
        self._frees = frees

    def allocations(self, gone: int) -> list[Object] | None:
        """The allocations once these units have gone; None if the claims, or the pod, do not fit."""
        going = indexes(gone)
        for name, amount in self._lacks.items():
            if sum(self._frees[n].get(name, 0) for n in going) < amount:
                return None
        with without(self._allocator, [claim for n in going for claim in self.units[n].claims]):
            try:
                return self._allocator.allocate(self._node, self._wanted)
            except PoolInvalid:
                return None  # they do not fit now, but may fit without others

    def if_they_fit(self, gone: int) -> list[Object] | None:
        """The same for a set between nobody and everybody; None if Kubernetes' allocator fails then.

        It fails, for example, where a request asks for all devices and a constraint excludes a free one.
        """
        try:
            return self.allocations(gone)
        except AllocationFailed:
            return None

    def victims(
        self, gone: int, allocations: Sequence[Object], budgets: Budgets, *, is_exact: bool = True
    ) -> Victims:
        """The victims if these units go."""
        going = tuple(self.units[n] for n in indexes(gone))
        name = str(self._node["metadata"]["name"])
        return Victims(name, going, cost_of(going, budgets), tuple(allocations), is_exact)


def _without_spare(fit: _Fit, gone: int, found: list[Object]) -> tuple[int, list[Object]]:
    """The units of a set that are needed, and the allocations; ``found`` are those without the whole set.

    The most important ones stay if they can, as in kube-scheduler.
    """
    order = sorted(indexes(gone), key=lambda n: importance(fit.units[n]), reverse=True)
    while order:
        # As many as possible stay at a time: the first that has to go is found by halving.
        low, high = 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            fitting = fit.if_they_fit(gone & ~_set(order[:middle]))
            if fitting is not None:
                low, found = middle, fitting
            else:
                high = middle - 1
        gone &= ~_set(order[:low])
        order = order[low + 1 :]
    return gone, found


def _set(positions: Sequence[int]) -> int:
    found = 0
    for n in positions:
        found |= 1 << n
    return found


@contextmanager
def without(allocator: Allocator, claims: Sequence[Json]) -> Iterator[None]:
    """While it lasts, the allocator counts these allocated claims as free."""
    for claim in claims:
        allocator.release(claim)
    try:
        yield
    finally:
        for claim in claims:
            allocator.assume(claim)


@contextmanager
def _within(allocator: Allocator, claims: Sequence[Json]) -> Iterator[None]:
    """While it lasts, the allocator counts these allocated claims as in use, too."""
    for claim in claims:
        allocator.assume(claim)
    try:
        yield
    finally:
        for claim in claims:
            allocator.release(claim)
