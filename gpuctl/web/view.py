"""The whole cluster at one moment: one frozen value, from which all pages are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.cli.cluster import event_time
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import allocated, claim_key
from gpuctl.fleet.nodes import DeviceState, NodeState, NodeView, device_states
from gpuctl.fleet.pods import (
    WaitingPod,
    asks_devices,
    not_prepared,
    stuck_containers,
    waiting_pod,
)
from gpuctl.fleet.published import read_node
from gpuctl.fleet.seen import Seen
from gpuctl.status.picture import faults
from gpuctl.web.classes import ClassDevices, Tier
from kubernetes_rules.errors import AllocationFailed, RuleError

Object = Mapping[str, Any]

_RANK = {"held": 0, "free": 1, "unavailable": 2, "excluded": 3}


@dataclass(frozen=True, slots=True)
class Summary:
    """The cluster in numbers; each GPU is one of ``free``, ``in_use`` and ``unavailable``.

    ``used`` is the sum of the parts of GPUs that claims have. ``unavailable`` GPUs are not in use, and take
    no claims. ``sick`` GPUs may be any of the three.
    """

    nodes: int
    gpus: int
    free: int
    in_use: int
    unavailable: int
    used: float
    sick: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong and what to do, on which nodes, and the pod that it is about: ``namespace/name``."""

    text: str
    nodes: tuple[str, ...] = ()
    pod: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """Everything that pages show. ``at`` is the API server's time, RFC 3339.

    ``nodes`` begin with the sick ones; ``unread`` are the kinds that this user may not read. ``slices`` are
    by node. ``waiting`` are the pods that wait for devices, ``pods`` also those that fail.
    """

    at: str
    nodes: tuple[NodeView, ...]
    summary: Summary
    problems: tuple[Problem, ...]
    waiting: tuple[WaitingPod, ...]
    pods: Mapping[str, WaitingPod]
    tiers: tuple[Tier, ...]
    unread: tuple[str, ...]
    slices: Mapping[str, Sequence[Object]]
    claims: Sequence[Object]


def view_of(
    at: str,
    seen: Seen,
    nodes: Iterable[Object],
    classes: Sequence[Object],
    unread: Iterable[str],
    fleet: Fleet,
    selected: ClassDevices,
) -> View:
    """The view; ``fleet`` and ``selected`` know what was computed for the last one."""
    slices: dict[str, list[Object]] = {}
    for one in seen.slices:
        if one["spec"]["driver"] == DRIVER_NAME and one["spec"].get("nodeName"):
            slices.setdefault(one["spec"]["nodeName"], []).append(one)
    remarks = {str(one["metadata"]["name"]): _remarks(one) for one in nodes}
    views = sorted(
        (replace(one, remarks=remarks.get(one.name, ())) for one in _views(fleet, slices, seen.claims)),
        key=lambda one: (not one.is_amiss, one.name),
    )
    claims = {claim_key(one): one for one in seen.claims}
    pods = sorted(
        (waiting_pod(pod, claims, classes) for pod in seen.pending if asks_devices(pod)),
        key=lambda one: (one.since, one.key),
    )
    failing = dict(_failing(seen))
    waiting = tuple(pod for pod in pods if pod.key not in failing)
    return View(
        at,
        tuple(views),
        _summary(views, len(waiting)),
        tuple(_problems(views, seen, failing, {pod.key: pod.node or "" for pod in pods})),
        waiting,
        {pod.key: pod for pod in pods},
        selected.tiers(classes, slices, views, waiting),
        tuple(unread),
        slices,
        seen.claims,
    )


def _views(
    fleet: Fleet, slices: Mapping[str, Sequence[Object]], claims: Sequence[Object]
) -> Iterable[NodeView]:
    try:
        return fleet.read([one for items in slices.values() for one in items], claims)
    except AllocationFailed:
        # A node's token can write a slice that makes no sense. The page shows the others all the same.
        views = {one.name: one for one in Fleet().read((), claims)}
        for name, items in slices.items():
            try:
                views |= {one.name: one for one in Fleet().read(items, claims) if one.name == name}
            except AllocationFailed as error:
                views[name] = NodeView(NodeState(name, pool_problem=error.what))
        return views.values()


def _remarks(node: Object) -> tuple[str, ...]:
    """Remarks about a Node: ``cordoned``, ``not ready``."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return ("cordoned",) * cordoned + ("not ready",) * (ready in ("False", "Unknown"))


def _summary(nodes: Sequence[NodeView], waiting: int) -> Summary:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    return Summary(
        len(nodes),
        len(gpus),
        sum(gpu.use == "free" and not gpu.blocked for gpu in gpus),
        sum(gpu.use != "free" for gpu in gpus),
        sum(gpu.use == "free" and gpu.blocked for gpu in gpus),
        sum(node.used for node in nodes),
        sum(gpu.is_sick for gpu in gpus),
        waiting,
    )


def _failing(seen: Seen) -> Iterator[tuple[str, str]]:
    """The pods that cannot start on their node, and why."""
    events: dict[str, list[Object]] = {}
    for event in sorted(seen.not_prepared, key=event_time):
        events.setdefault(str((event.get("involvedObject") or {}).get("uid")), []).append(event)
    for pod in seen.pending:
        if asks_devices(pod) and pod["spec"].get("nodeName"):
            own = events.get(str(pod["metadata"].get("uid")), ())
            why = next(stuck_containers(pod), "") or not_prepared(pod, own)
            if why:
                yield claim_key(pod), f"it cannot start: {why}"


def _problems(
    views: Sequence[NodeView], seen: Seen, failing: Mapping[str, str], places: Mapping[str, str]
) -> Iterator[Problem]:
    """What is wrong, in the words of ``gpuctl status``, and each pod that cannot start."""
    for names, text in faults(one.state for one in views):
        yield Problem(text, tuple(names))
    known = {one.name for one in views}
    for line in replace(seen, pending=(), not_prepared=()).problems(views):
        name, _, text = line.partition(": ")
        yield Problem(text, (name,)) if name in known else Problem(line)
    for key, why in failing.items():
        yield Problem(why, (places[key],), key)


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """A GPU with its forms, held ones first."""

    gpu: GpuState
    forms: tuple[DeviceState, ...]


def gpu_details(view: View, node: NodeView) -> tuple[GpuDetail, ...]:
    """The GPUs of a node in full; none if its slices cannot be read, as the node's problem says."""
    # The views have no single devices, which are many; a node's page is asked for rarely.
    try:
        read = read_node(node.name, view.slices.get(node.name, ()))
        pools = read.pool_names
        claims = [one for one in view.claims if any(held.pool in pools for held in allocated(one))]
        devices = device_states(read, claims)
    except RuleError:
        return ()
    by_gpu: dict[str, list[DeviceState]] = {}
    for one in sorted(devices, key=lambda one: _RANK[one.state]):
        for part in one.device.lies_on:
            by_gpu.setdefault(part.gpu, []).append(one)
    return tuple(GpuDetail(gpu, tuple(by_gpu.get(gpu.device, ()))) for gpu in node.gpus)
