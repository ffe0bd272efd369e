"""Chooses the node on which the least important pods have to go for a pod that waits for devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kubernetes_rules.cel.selector import check_time
from kubernetes_rules.errors import PoolInvalid, RuleError
from kubernetes_rules.preemption.asked import Asked, is_allocated
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.pod_fit import (
    Domain,
    added_up,
    closed,
    forbidden_domains,
    is_in,
    lacking,
    pod_amounts_on,
    unjudged,
)
from kubernetes_rules.preemption.room import Room, smallest_room, within
from kubernetes_rules.preemption.units import Unit, group_key, least_of, node_of

Object = dict[str, Any]

MayGo = Callable[[Unit], bool]
"""Whether a unit may go. Decisions are looked up by it, so it has to be equal if it means the same."""

Kind = Literal["room", "fits now", "waits", "unjudged", "never", "no victims"]

_MOST_KINDS = 256
"""What was found on nodes is kept for this many kinds of pods."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided for a pod, as a sentence in ``text``.

    ``room``: its units have to go. ``fits now``: nobody has to. ``waits``: nobody has to, it fits once pods
    that are being deleted have ended. ``unjudged``: these rules cannot say. ``never``: no node could run it,
    whoever went. ``no victims``: nobody that may go makes room. With the first three the room says where.
    """

    kind: Kind
    text: str
    room: Room | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found on one node; ``kind`` is None if there is nothing to say but why the node is closed.

    ``gives_up``: the scheduler gives up the pod at this node, whatever other nodes have.
    """

    kind: Kind | None
    text: str = ""
    room: Room | None = None
    gives_up: bool = False


def best_room(cluster: Cluster, asked: Asked, may_go: MayGo) -> Choice:
    """What has to happen until the pod can run, at the least cost; a claim alone, without a pod, too."""
    own = cannot_judge(asked) or _in_gang(cluster, asked)
    if own is not None:
        return Choice("unjudged", own)
    key = kind_of(cluster, asked), may_go
    known: Choice | None = cluster.decisions.get(key)
    if known is None:
        known = cluster.decisions[key] = _decide(cluster, asked, may_go, key)
    return known


def rooms(cluster: Cluster, asked: Asked, may_go: MayGo) -> list[Room]:
    """The best room of each node that has one, the cheapest first; those where nobody has to go are first."""
    found = [
        one.room for one in _on_all(cluster, asked, may_go, (kind_of(cluster, asked), may_go)) if one.room
    ]
    return sorted(found, key=lambda room: room.cost)


def cannot_judge(asked: Asked) -> str | None:
    """What the pod has that these rules cannot judge, as a sentence."""
    own = unjudged(asked.pod) if asked.pod is not None else ()
    return f"these rules cannot judge {', '.join(own)}" if own else None


def _in_gang(cluster: Cluster, asked: Asked) -> str | None:
    key = group_key(asked.pod) if asked.pod is not None else None
    if key is None:
        return None
    group = cluster.groups.get(key)
    if group is None:
        return f"its group {'/'.join(key)} is not known"
    gang = least_of(group) is not None
    return f"it is scheduled together with its group {'/'.join(key)}" if gang else None


def _decide(cluster: Cluster, asked: Asked, may_go: MayGo, key: Hashable) -> Choice:
    found = _on_all(cluster, asked, may_go, key)
    for kind in ("fits now", "waits"):
        for one in found:
            if one.kind == kind:
                return Choice(one.kind, one.text, one.room)
    with_room = [one.room for one in found if one.room is not None]
    doubtful = in_doubt(found)
    if doubtful is not None and (doubtful.gives_up or not with_room):
        return Choice("unjudged", doubtful.text)
    if with_room:
        best = min(with_room, key=lambda room: room.cost)
        return Choice("room", _fits_if(best), best)
    open_to = [one for one in found if one.kind is not None]
    if not any(one.kind == "no victims" for one in open_to):
        return Choice("never", _never(found))
    nodes = f"any of {len(open_to)} nodes" if len(open_to) > 1 else "the one node that could run it"
    nobody = f"nobody that may go makes room for it on {nodes}"
    return Choice("no victims", next((one.text for one in open_to if one.text), nobody))


def in_doubt(found: Iterable[Tried]) -> Tried | None:
    """The node that keeps others from being chosen, else the first that cannot be judged."""
    doubtful = [one for one in found if one.kind == "unjudged"]
    return max(doubtful, key=lambda one: one.gives_up, default=None)


def _fits_if(room: Room) -> str:
    return f"it would fit on {room.node} if {', '.join(map(str, room.units))} ended"


def _never(found: Sequence[Tried]) -> str:
    reasons = Counter(one.text for one in found if one.text)
    told = "; ".join(f"{count}: {text}" for text, count in reasons.most_common(3))
    return f"no node could run it, whoever ended{f' ({told})' if told else ''}"


def _on_all(cluster: Cluster, asked: Asked, may_go: MayGo, key: Hashable) -> list[Tried]:
    """What is found on each node."""
    if key not in cluster.tried and len(cluster.tried) >= _MOST_KINDS:
        cluster.tried.clear()
    known = cluster.tried.setdefault(key, {})
    domains = forbidden_domains(asked.pod, cluster.repelling) if asked.pod is not None else frozenset()
    found = []
    for name, node in cluster.nodes.items():
        state, before = known.get(name, (None, None))
        if before is None or state is not cluster.states[name]:
            before = try_node(cluster, asked, may_go, node, domains)
            known[name] = cluster.states[name], before
        found.append(before)
    return found


def try_node(
    cluster: Cluster,
    asked: Asked,
    may_go: MayGo,
    node: Object,
    domains: Iterable[Domain],
    more: Mapping[str, int] | None = None,
    *,
    in_gang: bool = False,
) -> Tried:
    """What is found on one node.

    ``domains`` are where other pods keep the pod away. ``more`` is what is used of the node's resources
    beyond what the snapshot says. A pod ``in_gang`` may need no devices itself. Raises TooCostly.
    """
    name = str(node["metadata"]["name"])
    check_time()
    try:
        why = closed(asked.pod, node, asked.claims) or asked.missing_on(node)
        if why is not None:
            return Tried(None, why)
        wanted = asked.on(node)
        if not wanted and not in_gang:
            return Tried(None, "it needs no devices of claims there")
        if is_in(node, domains):
            return Tried("unjudged", f"the anti-affinity of other pods may keep it away from {name}")
        used = added_up((cluster.used(name), more or {}))
        return _try_open(cluster, asked, may_go, node, wanted, used)
    except PoolInvalid as error:
        return Tried("unjudged", error.what)
    except RuleError as error:
        return Tried("unjudged", f"{name}: {error.what}", gives_up=True)


def _try_open(
    cluster: Cluster,
    asked: Asked,
    may_go: MayGo,
    node: Object,
    wanted: Sequence[Object],
    used: Mapping[str, int],
) -> Tried:
    name = str(node["metadata"]["name"])
    amounts = pod_amounts_on(asked.pod) if asked.pod is not None else {}
    lacks = lacking(amounts, node, used)
    if lacks and cluster.allocator.allocate(node, wanted) is not None:
        return Tried("no victims", f"its devices are free on {name}, but it lacks {', '.join(sorted(lacks))}")
    units = [unit for unit in cluster.units.on_node.get(name, ()) if unit.claims and may_go(unit)]
    frees = [_frees(unit, name, lacks) for unit in units] if lacks else ()
    room = smallest_room(cluster.allocator, node, wanted, units, cluster.budgets, lacks, frees)
    if room is None:
        empty = cluster.allocator.with_claims(one for one in asked.claims if is_allocated(one))
        if lacking(amounts, node, {}) or empty.allocate(node, wanted) is None:
            return Tried(None, "it does not have as much")
        return Tried("no victims")
    if room.units:
        return Tried("room", room=room)
    used = added_up((used, cluster.used_by_ending(name)))
    with within(cluster.allocator, cluster.units.ending):
        fits = not lacking(amounts, node, used) and cluster.allocator.allocate(node, wanted) is not None
    if fits:
        return Tried("fits now", f"its devices are free on {name}", room)
    return Tried("waits", f"it fits on {name} once pods that are being deleted have ended", room)


def _frees(unit: Unit, node: str, lacks: Iterable[str]) -> dict[str, int]:
    """What a unit frees on a node of the resources that are lacking."""
    freed = added_up(pod_amounts_on(pod) for pod in unit.pods if node_of(pod) == node)
    return {name: freed[name] for name in lacks if name in freed}


def kind_of(cluster: Cluster, asked: Asked) -> Hashable:
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
