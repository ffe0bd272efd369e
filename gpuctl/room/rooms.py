"""Works out which pods would have to end for a pod, under each of three policies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ConfigError
from gpuctl.explain.findings import Finding
from gpuctl.explain.pod.claims import claims_of_pod
from gpuctl.explain.room import (
    CLAIM_NOT_MADE,
    SELECTOR_SECONDS,
    LowerPriority,
    priority_of,
)
from gpuctl.explain.snapshot import Object, Snapshot
from gpuctl.room.wanted import Wanted
from kubernetes_rules.cel.selector import TooCostly, selectors_within
from kubernetes_rules.disruption_budgets import budget_selects
from kubernetes_rules.preemption.asked import Asked, is_allocated
from kubernetes_rules.preemption.choose import MayGo, best_room, rooms
from kubernetes_rules.preemption.cluster import Cluster
from kubernetes_rules.preemption.room import Room
from kubernetes_rules.preemption.units import Unit, can_be_evicted

MOVABLE = "gpu.nvidia.com/movable"
"""The annotation by which the owner of a pod allows it to be evicted for others: ``true``."""

Policy = Literal["lower-priority", "movable", "any"]
Verdict = Literal["placed", "idle", "incomplete", "fits", "ending", "room", "full", "never", "unjudged"]
"""``placed``: it has a node. ``idle``: it lacks no devices. ``incomplete``: something is wrong with its
claims. ``fits``: nobody has to go. ``ending``: it fits once pods that are ending have ended. ``room``: some
pods would have to end. ``full``: nobody's end makes room. ``never``: no node could run it. ``unjudged``:
these rules cannot say."""

NEEDS_NOTHING: frozenset[Verdict] = frozenset({"placed", "idle", "fits"})
"""The verdicts of a pod that waits for no devices."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget, and how many evictions it allows now."""

    name: str
    allows: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that would have to end. ``owner`` is its controller, ``since`` is when it started."""

    namespace: str
    name: str
    node: str
    priority: int
    movable: bool
    since: str | None
    owner: str | None
    budgets: tuple[Budget, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Pods whose end lets the pod fit on a node, and the devices that it would get then.

    A budget forbids to evict ``refused`` of them now. If not ``exact``, none of them can be left out, but a
    set that costs less may exist.
    """

    node: str
    pods: tuple[Leaving, ...]
    gains: tuple[str, ...]
    refused: int
    exact: bool


@dataclass(frozen=True, slots=True)
class PolicyRooms:
    """The best set of pods on each node under one policy, the best node first; else ``why`` there is none."""

    policy: Policy
    why: str
    rooms: tuple[NodeRoom, ...]


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """The answer about one pod; ``unread`` are kinds of objects that were not considered."""

    namespace: str
    name: str
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    policies: tuple[PolicyRooms, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Movable:
    """Units may go whose pods all have the annotation."""

    def __call__(self, unit: Unit) -> bool:
        """Whether the unit may go."""
        return all(is_movable(pod) for pod in unit.pods) and can_be_evicted(unit)


@dataclass(frozen=True, slots=True)
class Anyone:
    """All units may go that can be evicted at all."""

    def __call__(self, unit: Unit) -> bool:
        """Whether the unit may go."""
        return can_be_evicted(unit)


def is_movable(pod: Mapping[str, Any]) -> bool:
    """Whether the pod's owner allows it to be evicted for others."""
    return (pod["metadata"].get("annotations") or {}).get(MOVABLE) == "true"


@contextmanager
def selectors_in_time() -> Iterator[None]:
    """Limit the processor time of selectors; raises ConfigError past it."""
    try:
        with selectors_within(SELECTOR_SECONDS):
            yield
    except TooCostly as error:
        raise ConfigError(
            f"{error}, most of it {error.expression[:200]!r}",
            "write it with fewer nested all(), exists() or map()",
        ) from error


def answer(
    wanted: Wanted, snapshot: Snapshot, cluster: Cluster, budgets: Sequence[Object], unread: tuple[str, ...]
) -> RoomAnswer:
    """Who would have to go for a pod. Raises AllocationFailed for malformed objects, and TooCostly."""

    def told(
        verdict: Verdict, summary: str, *findings: Finding, by: Sequence[PolicyRooms] = ()
    ) -> RoomAnswer:
        return RoomAnswer(wanted.namespace, wanted.name, verdict, summary, findings, tuple(by), unread)

    pod = wanted.pod
    if pod["spec"].get("nodeName"):
        return told("placed", f"it is on {pod['spec']['nodeName']} already, and needs no room")
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return told("placed", "it has ended, and needs no room")
    if not wanted.asks_devices:
        return told("idle", "it asks for no devices")
    claims = claims_of_pod(pod, snapshot, wanted.templates, wanted.events)
    wrong = [one for one in claims.findings if one.kind != CLAIM_NOT_MADE]
    if wrong:
        return told("incomplete", "something is wrong with its claims, so no room would help", *wrong)
    asks_more = claims.extended is not None and claims.extended.asks_devices
    if not asks_more and all(map(is_allocated, claims.claims)):
        return told("idle", "its claims have their devices; it waits for something else")
    asked = Asked(pod, claims.claims, claims.extended)
    policies: list[tuple[Policy, MayGo]] = [
        ("lower-priority", LowerPriority(priority_of(pod))),
        ("movable", Movable()),
        ("any", Anyone()),
    ]
    choices = [(policy, may_go, best_room(cluster, asked, may_go)) for policy, may_go in policies]
    last = choices[-1][2]
    # Who may go does not matter to these: nobody has to, or it cannot be said.
    plain: Mapping[str, Verdict] = {"fits now": "fits", "waits": "ending", "unjudged": "unjudged"}
    if last.kind in plain:
        return told(plain[last.kind], last.text)
    found = [
        PolicyRooms(
            policy,
            "" if choice.kind == "room" else choice.text,
            tuple(_node_rooms(rooms(cluster, asked, may_go), budgets)) if choice.kind == "room" else (),
        )
        for policy, may_go, choice in choices
    ]
    if last.kind == "room":
        return told("room", "it waits, and would fit if pods ended", by=found)
    if last.kind == "never":
        return told("never", last.text)
    return told("full", last.text, by=found)


def _node_rooms(found: Iterable[Room], budgets: Sequence[Object]) -> Iterable[NodeRoom]:
    for one in found:
        if one.units:
            yield NodeRoom(
                one.node,
                tuple(leaving(pod, budgets, priority) for unit in one.units for pod, priority in _pods(unit)),
                tuple(device for allocation in one.allocations for device in devices_of(allocation)),
                one.cost.violations,
                one.is_exact,
            )


def _pods(unit: Unit) -> Iterable[tuple[Mapping[str, Any], int]]:
    return zip(unit.pods, unit.priorities, strict=True)


def leaving(pod: Mapping[str, Any], budgets: Sequence[Object], priority: int) -> Leaving:
    """What people want to know of a pod before it ends."""
    metadata = pod["metadata"]
    owner = controller_of(pod)
    return Leaving(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        node=str(pod["spec"].get("nodeName") or ""),
        priority=priority,
        movable=is_movable(pod),
        since=(pod.get("status") or {}).get("startTime"),
        owner=f"{owner['kind']}/{owner['name']}" if owner else None,
        budgets=tuple(
            Budget(one["metadata"]["name"], int((one.get("status") or {}).get("disruptionsAllowed") or 0))
            for one in budgets
            if one["metadata"]["namespace"] == metadata["namespace"] and budget_selects(one, pod)
        ),
    )


def controller_of(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the controller that makes the pod again, None without one."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), None)


def devices_of(allocation: Mapping[str, Any]) -> list[str]:
    """The devices of an allocation as ``pool/device``."""
    results = (allocation.get("devices") or {}).get("results") or ()
    return [f"{one['pool']}/{one['device']}" for one in results]
