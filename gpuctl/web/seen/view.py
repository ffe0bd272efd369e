"""The whole cluster at one moment: one frozen value, from which all pages are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.fleet.devices import Taint
from gpuctl.fleet.gpus import GpuState
from gpuctl.fleet.holders import allocated, claim_key
from gpuctl.fleet.nodes import DeviceState, NodeView, device_states
from gpuctl.fleet.pods import WaitingPod, why_not_ready
from gpuctl.fleet.published import read_node
from gpuctl.web.seen.classes import Tier
from gpuctl.web.seen.history import Change
from kubernetes_rules.errors import RuleError

Object = Mapping[str, Any]

_RANK = {"held": 0, "free": 1, "unavailable": 2, "excluded": 3}

NOT_UP_TO_DATE = "Not up to date"
"""How the words about a broken watch begin."""

PARTS = ("summary", "sick", "waiting", "tiers", "nodes", "history")
"""The parts of the first page, each with its own version."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The cluster in numbers; each GPU is one of ``free``, ``in_use`` and ``unavailable``.

    ``used`` is the sum of the parts of GPUs that claims have. ``unavailable`` GPUs are not in use, and take
    no claims. ``sick`` GPUs may be any of the three.
    """

    nodes: int = 0
    gpus: int = 0
    free: int = 0
    in_use: int = 0
    unavailable: int = 0
    used: float = 0.0
    sick: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Sick:
    """What is wrong with a GPU, a pool, a claim's device, or a pod. ``blocks``: no new claim can get it."""

    node: str
    what: str
    why: str
    taints: tuple[Taint, ...] = ()
    since: str = ""
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of the API behind a view; they must not be changed."""

    nodes: tuple[Object, ...] = ()
    slices: tuple[Object, ...] = ()
    classes: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()
    pods: Mapping[str, Object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """Everything that pages show. ``version`` grows with each view, ``parts`` has a version for each part.

    ``cluster`` is the version of the objects that explanations depend on. ``at`` is the API server's time,
    RFC 3339, and ``since`` is the time at which the history begins. ``synced``: everything was read at least
    once. ``failing`` says which watches are broken, and why. The selectors of classes were evaluated for
    ``classes_of`` nodes.
    """

    version: int = 0
    parts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    cluster: int = 0
    at: str = ""
    since: str = ""
    synced: bool = False
    failing: tuple[str, ...] = ()
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    summary: Summary = Summary()
    sick: tuple[Sick, ...] = ()
    waiting: tuple[WaitingPod, ...] = ()
    tiers: tuple[Tier, ...] = ()
    classes_of: int = 0
    history: tuple[Change, ...] = ()
    objects: Objects = Objects()

    @property
    def stale(self) -> bool:
        """Whether a watch is broken, so that something may have changed meanwhile."""
        return any(one.startswith(NOT_UP_TO_DATE) for one in self.failing)


def ordered(nodes: Mapping[str, NodeView]) -> tuple[str, ...]:
    """The names of the nodes: sick ones first, then by name."""
    return tuple(sorted(nodes, key=lambda name: (not nodes[name].is_amiss, name)))


def summary(nodes: Mapping[str, NodeView], waiting: Sequence[WaitingPod]) -> Summary:
    """The numbers at the head of the page."""
    gpus = [gpu for node in nodes.values() for gpu in node.gpus]
    return Summary(
        len(nodes),
        len(gpus),
        sum(gpu.use == "free" and not gpu.blocked for gpu in gpus),
        sum(gpu.use != "free" for gpu in gpus),
        sum(gpu.use == "free" and gpu.blocked for gpu in gpus),
        sum(node.used for node in nodes.values()),
        sum(gpu.is_sick for gpu in gpus),
        len(waiting),
    )


def sick(
    nodes: Mapping[str, NodeView], order: Sequence[str], driver_pods: Iterable[Object] = ()
) -> tuple[Sick, ...]:
    """Everything that is wrong; what keeps claims away comes first."""
    found = [one for name in order if nodes[name].is_amiss for one in _sick(nodes[name])]
    found += [
        Sick(str(pod["spec"].get("nodeName") or ""), f"pod {claim_key(pod)}", f"it is not ready: {why}")
        for pod in driver_pods
        if (why := why_not_ready(pod))
    ]
    return tuple(sorted(found, key=lambda one: not one.blocks))


def _sick(node: NodeView) -> Iterator[Sick]:
    if node.state.pool_problem:
        yield Sick(node.name, "its pool", f"nothing of it can be allocated: {node.state.pool_problem}")
    if node.state.missing:
        yield Sick(node.name, "its slices", node.state.missing, blocks=not node.gpus)
    for gpu in node.gpus:
        if gpu.taints:
            taints = tuple(one.taint for one in gpu.taints)
            yield Sick(node.name, gpu.title, _extent(gpu), taints, gpu.since, blocks=gpu.blocked)
    for one in node.not_ready:
        yield Sick(node.name, f"claim {one.claim}", f"{one.device}: {one.trouble}", blocks=False)


def _extent(gpu: GpuState) -> str:
    return "" if gpu.tainted == gpu.devices else f"{gpu.tainted} of its {gpu.devices} forms"


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """A GPU with its forms, held ones first."""

    gpu: GpuState
    forms: tuple[DeviceState, ...]


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """A node with its GPUs; without GPUs if its slices cannot be read, as the view says."""

    node: NodeView
    gpus: tuple[GpuDetail, ...]


def node_detail(view: View, name: str) -> NodeDetail | None:
    """The node in full, None if it publishes nothing."""
    node = view.nodes.get(name)
    if node is None:
        return None
    # The views have no single devices, which are many; a node's page is asked for rarely.
    slices = [
        one
        for one in view.objects.slices
        if one["spec"].get("nodeName") == name and one["spec"].get("driver") == DRIVER_NAME
    ]
    try:
        read = read_node(name, slices)
        pools = read.pool_names
        claims = [one for one in view.objects.claims if any(held.pool in pools for held in allocated(one))]
        devices = device_states(read, claims)
    except RuleError:
        return NodeDetail(node, ())
    by_gpu: dict[str, list[DeviceState]] = {}
    for one in sorted(devices, key=lambda one: _RANK[one.state]):
        for part in one.device.lies_on:
            by_gpu.setdefault(part.gpu, []).append(one)
    return NodeDetail(node, tuple(GpuDetail(gpu, tuple(by_gpu.get(gpu.device, ()))) for gpu in node.gpus))
