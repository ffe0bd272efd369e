"""What the GPUs of a cluster are, by node and tier: how many are allocated, free or unavailable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driver.devices.memory_limits import BY_CGROUP
from driver.devices.names import DRIVER_NAME
from driver.kinds.registry import KINDS
from gpuctl.status.memory import GpuMemory, Place, gpu_memory, not_held
from gpuctl.status.pool_counters import PoolCounters, counters_of
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.pool_generations import newest_slices
from kubernetes_rules.tolerations import untolerated_taint

Object = Mapping[str, Any]

_PCI = "resource.kubernetes.io/pciBusID"


@dataclass(slots=True)
class TierCount:
    """Devices of one tier on one node; those that are not allocated are free, excluded or unavailable.

    ``free`` counts those that a claim could have now, ``at_once`` how many of them together: partitions
    that overlap exclude each other. ``excluded`` are those whose GPU is taken, wholly or in part, in
    another form. ``unavailable`` ones take no claims, since they are tainted or their pool cannot be used.
    ``claims`` counts those that share a device each by itself. A shared device is free while a claim that
    asks for no amount still has room on it, also when it is allocated; ``claims_left`` is how many such
    claims there is room for, None where nothing is shared.
    """

    devices: int = 0
    allocated: int = 0
    unavailable: int = 0
    free: int = 0
    at_once: int = 0
    excluded: int = 0
    claims: int = 0
    claims_left: int | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a device as its slice has it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Tainted:
    """Devices of one GPU that have the same taints.

    ``gpu`` is its PCI address, or the device's name where that is not published; ``index`` as nvidia-smi
    counts. ``of_gpu`` is how many devices the GPU is published as.
    """

    gpu: str
    devices: tuple[str, ...]
    of_gpu: int
    taints: tuple[Taint, ...]
    index: int | None = None


@dataclass(frozen=True, slots=True)
class WithheldPartitions:
    """A GPU that the node configuration wants to offer in partitions, and why it does not."""

    device: str
    reason: str


@dataclass(slots=True)
class NodeState:
    """One node that publishes GPUs; ``pool_problem`` says why nothing of its pool can be allocated.

    ``memory`` has the GPUs of which the status of claims tells what memory is held.
    """

    name: str
    product: str | None = None
    driver_version: str | None = None
    tiers: dict[str, TierCount] = field(default_factory=dict)
    tainted: list[Tainted] = field(default_factory=list)
    withheld_partitions: list[WithheldPartitions] = field(default_factory=list)
    pool_problem: str | None = None
    memory: list[GpuMemory] = field(default_factory=list)

    @property
    def is_amiss(self) -> bool:
        """Whether a device is tainted, the pool cannot be used, or a memory limit is not held."""
        return bool(self.tainted or self.pool_problem or next(not_held(self.memory), None))


def fleet(slices: Iterable[Object], claims: Iterable[Object]) -> list[NodeState]:
    """The nodes with GPUs of this driver, by name. Raises AllocationFailed for a malformed slice or claim."""
    return [node_state(one) for one in published_nodes(slices, claims)]


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What a node publishes that counts, and the allocated claims that have something of its pools."""

    name: str
    slices: tuple[Object, ...]
    claims: tuple[Object, ...]


def published_nodes(slices: Iterable[Object], claims: Iterable[Object]) -> list[PublishedNode]:
    """The nodes with GPUs of this driver, by name, each with the claims that have devices of it."""
    holders: dict[str, list[Object]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = allocation.get("devices", {}).get("results") or ()
        for pool in dict.fromkeys(one["pool"] for one in results if one["driver"] == DRIVER_NAME):
            holders.setdefault(pool, []).append(claim)
    nodes = []
    for name, members in sorted(_by_node(slices).items()):
        current = [one for pool in newest_slices(members).values() for one in pool]
        pools = dict.fromkeys(str(one["spec"]["pool"]["name"]) for one in current)
        theirs = {id(claim): claim for pool in pools for claim in holders.get(pool, ())}
        nodes.append(PublishedNode(name, tuple(current), tuple(theirs.values())))
    return nodes


def node_state(node: PublishedNode) -> NodeState:
    """What of a node is allocated, free or amiss. Raises AllocationFailed for a malformed slice or claim."""
    holders, held = _holders(node.claims), Held()
    for claim in node.claims:
        held.add(claim)
    counters = counters_of(node.name, node.slices, held)
    state = NodeState(node.name, pool_problem=counters.problem)
    free: dict[str, list[str]] = {}
    for one in sorted(node.slices, key=lambda item: str(item["metadata"]["name"])):
        pool = one["spec"]["pool"]["name"]
        for device in one["spec"].get("devices") or ():
            tier = tier_of(device)
            if _count(state, tier, device, holders[pool, device["name"]], counters):
                free.setdefault(tier, []).append(str(device["name"]))
    for tier, names in free.items():
        state.tiers[tier].at_once = counters.at_once(names)
    state.tainted = _tainted(node.slices)
    pools = frozenset(str(one["spec"]["pool"]["name"]) for one in node.slices)
    state.memory = gpu_memory(pools, _places(node.slices), node.claims)
    return state


def tier_of(device: Object) -> str:
    """The form in which a device is handed out: ``whole``, ``mig 1g.10gb``, ``shared, mps`` and so on.

    A device that is whole for who asks for no amount, and shared for others, is ``fractional``. Where the
    NVIDIA driver holds time-sliced shares to their memory, that is said. What is no form of a container's GPU
    is called as its kind calls it.
    """
    form, profile = attribute(device, "type") or "gpu", attribute(device, "profile")
    if not device.get("allowMultipleAllocations"):
        return f"mig {profile or '?'}" if form == "mig" else "whole" if form == "gpu" else _own_title(device)
    name = f"mig {profile}, shared" if profile else "fractional" if form == "gpu" else "shared"
    strategy = attribute(device, "sharing")
    held = ", memory held" if attribute(device, "memoryIsolation") == BY_CGROUP else ""
    return f"{name}, {strategy}{held}" if strategy else name


def _own_title(device: Object) -> str:
    """What a device is called by its kind: the word of that, and what tells it from others of the kind."""
    name = KINDS.parse(str(device.get("name", "")))
    if name is None:
        return str(attribute(device, "type"))
    attributes = {key: attribute(device, key) for key in device.get("attributes") or {}}
    title = name.kind.title(name.unshared, attributes)
    return title if title.startswith(name.kind.word) else f"{name.kind.word} {title}".rstrip()


def attribute(device: Object, name: str) -> Any:
    """The value of a published attribute, whatever its type; None without it."""
    return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)


def _tainted(slices: Iterable[Object]) -> list[Tainted]:
    """The tainted devices, those of one GPU with the same taints together."""
    sizes: Counter[str] = Counter()
    found: dict[tuple[str, int | None, tuple[Taint, ...]], list[str]] = {}
    for device in (device for one in slices for device in one["spec"].get("devices") or ()):
        gpu = str(attribute(device, _PCI) or device["name"])
        sizes[gpu] += 1
        taints = tuple(
            Taint(str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
            for one in device.get("taints") or ()
        )
        if taints:
            found.setdefault((gpu, attribute(device, "index"), taints), []).append(str(device["name"]))
    return [
        Tainted(gpu, tuple(sorted(names)), sizes[gpu], taints, index)
        for (gpu, index, taints), names in sorted(found.items(), key=lambda item: (item[0][0], item[1]))
    ]


def _places(slices: Iterable[Object]) -> dict[str, Place]:
    """On which GPU each device lies."""
    return {
        str(device["name"]): (str(attribute(device, _PCI) or device["name"]), attribute(device, "index"))
        for one in slices
        for device in one["spec"].get("devices") or ()
    }


def _by_node(slices: Iterable[Object]) -> dict[str, list[Object]]:
    nodes: dict[str, list[Object]] = {}
    for one in slices:
        node = one["spec"].get("nodeName")
        if one["spec"]["driver"] == DRIVER_NAME and node:
            nodes.setdefault(node, []).append(one)
    return nodes


def _holders(claims: Sequence[Object]) -> Counter[tuple[str, str]]:
    """How many claims hold each device, by pool and name; those that only look on are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        counts.update(
            (result["pool"], result["device"])
            for result in claim["status"]["allocation"].get("devices", {}).get("results") or ()
            if result["driver"] == DRIVER_NAME and not result.get("adminAccess")
        )
    return counts


def _count(state: NodeState, tier_name: str, device: Object, holders: int, counters: PoolCounters) -> bool:
    """Count a device in its tier; whether it is free."""
    state.product = state.product or attribute(device, "productName")
    state.driver_version = state.driver_version or attribute(device, "driverVersion")
    reason = attribute(device, "migWithheld")
    if reason:
        state.withheld_partitions.append(WithheldPartitions(str(device["name"]), str(reason)))
    tier = state.tiers.setdefault(tier_name, TierCount())
    tier.devices += 1
    tier.claims += holders
    taints = device.get("taints") or ()
    blocked = bool(counters.problem) or untolerated_taint(taints, ()) is not None
    excluded = not holders and not blocked and not counters.fits(str(device["name"]))
    free = not holders and not blocked and not excluded
    left = counters.claims_left(str(device["name"]))
    if left is not None:
        free = not blocked and not excluded and left > 0
        tier.claims_left = (tier.claims_left or 0) + (left if free else 0)
    tier.unavailable += blocked
    tier.allocated += holders > 0
    tier.excluded += excluded
    tier.free += free
    return free
