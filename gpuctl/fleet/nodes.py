"""A node with its GPUs and the claims on them: what is allocated, free or unavailable, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from driver.devices.names import pool_name
from gpuctl.cli.output import some_of
from gpuctl.fleet.devices import Taint, attribute, capacity_of, memory_per_gpu, stored_amount
from gpuctl.fleet.gpus import GpuState, Holding
from gpuctl.fleet.holders import Allocated, allocated
from gpuctl.fleet.memory import GpuMemory, gpu_memory, not_held
from gpuctl.fleet.published import (
    OnGpu,
    PoolCounters,
    PublishedDevice,
    PublishedNode,
    WithheldPartitions,
    counters_in,
)
from kubernetes_rules.allocator.held import Held

Object = Mapping[str, Any]

State = Literal["held", "free", "excluded", "unavailable"]
"""``excluded``: its GPU is taken in another form. ``unavailable``: tainted, or its pool cannot be used."""


@dataclass(frozen=True, slots=True)
class TierCount:
    """Devices of one tier on one node; those that are not allocated are free, excluded or unavailable.

    ``free`` counts the devices that a claim could have now, ``at_once`` how many of them could be allocated
    together: partitions that overlap exclude each other. The GPU of an ``excluded`` device is taken, wholly
    or in part, in another form. An ``unavailable`` device takes no claims, since it is tainted or its pool
    cannot be used. ``claims`` counts each claim on a shared device. A shared device is free, even if it is
    allocated, while there is room for one more claim that asks for no amount. There is room for
    ``claims_left`` such claims, None if nothing is shared.
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
class Tainted:
    """Devices of one GPU that have the same taints.

    ``gpu`` is the GPU's PCI address, or the device's name if that is not published; ``index`` is the one that
    nvidia-smi shows. The GPU is published as ``of_gpu`` devices.
    """

    gpu: str
    devices: tuple[str, ...]
    of_gpu: int
    taints: tuple[Taint, ...]
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A device that a claim has, and that its node does not publish."""

    claim: str
    device: str


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with GPUs, in numbers; ``pool_problem`` says why nothing of its pool can be allocated.

    ``memory`` has the GPUs with a memory limit in the status of a claim. Without ``tiers`` it publishes
    nothing.
    """

    name: str
    product: str | None = None
    driver_version: str | None = None
    tiers: Mapping[str, TierCount] = field(default_factory=dict, hash=False)
    tainted: tuple[Tainted, ...] = ()
    withheld_partitions: tuple[WithheldPartitions, ...] = ()
    pool_problem: str | None = None
    memory: tuple[GpuMemory, ...] = ()
    unpublished: tuple[Unpublished, ...] = ()

    @property
    def is_amiss(self) -> bool:
        """Whether a device is tainted or missing, a pool unusable, or a memory limit not enforced."""
        return bool(
            self.tainted or self.pool_problem or self.unpublished or next(not_held(self.memory), None)
        )

    @property
    def missing(self) -> str:
        """Which devices of claims are not published, and what to do; empty if all are."""
        if not self.unpublished:
            return ""
        claims = some_of(list(dict.fromkeys(one.claim for one in self.unpublished)), 5)
        if not self.tiers:
            doctor = f"`gpuctl doctor {self.name}` looks for the reason"
            return f"it publishes nothing, although claims have devices there ({claims}): {doctor}"
        devices = some_of([one.device for one in self.unpublished], 5)
        return f"it does not publish {devices}, which claims have ({claims}): see its controller's log"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: its state in numbers, its GPUs one by one, and the names of devices by their state.

    A shared device may be both held and free. ``remarks`` are words about the Node object, such as
    ``cordoned``, if that was read as well.
    """

    state: NodeState
    gpus: tuple[GpuState, ...] = ()
    held: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    unavailable: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.state.name

    @property
    def not_ready(self) -> tuple[Holding, ...]:
        """What claims hold but cannot use, as their status says."""
        # A device of several GPUs is a holding of each.
        found = {(one.claim, one.device, one.share_id): one for gpu in self.gpus for one in gpu.holdings}
        return tuple(one for one in found.values() if one.trouble is not None)

    @property
    def is_amiss(self) -> bool:
        """Whether something is wrong with its GPUs, its pool, or what claims have of it."""
        return self.state.is_amiss or bool(self.not_ready)

    @property
    def used(self) -> float:
        """The number of GPUs that claims have, parts added up."""
        return sum(gpu.used for gpu in self.gpus)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A published device, its state, and the claims that have it.

    There is room for ``claims_left`` more claims that ask for no amount, None if the device is not shared.
    ``is_free``: such a claim could have it now.
    """

    device: PublishedDevice
    state: State
    holders: tuple[Allocated, ...]
    claims_left: int | None
    is_free: bool

    @property
    def claims(self) -> int:
        """How many claims have something of it, without those of admin access."""
        return sum(not one.admin_access for one in self.holders)


def node_view(node: PublishedNode, claims: Sequence[Object]) -> NodeView:
    """The node with the claims that have devices of it. Raises AllocationFailed for a malformed claim."""
    counters = _counters(node, claims)
    devices = _device_states(node, claims, counters)
    state = NodeState(
        node.name,
        node.product,
        node.driver_version,
        _tiers(devices, counters),
        tuple(_tainted(node.devices)),
        node.withheld,
        counters.problem,
        tuple(gpu_memory(node.pool_names, _places(node.devices), claims)),
        # While a pool is incomplete, its other devices are not there yet.
        () if counters.problem else _unpublished(node.pool_names, claims, {one.name for one in node.devices}),
    )
    holdings = _holdings(devices)
    gpus = tuple(
        replace(
            gpu,
            holdings=tuple(holdings.get(gpu.device, ())),
            blocked=gpu.blocked or counters.problem is not None,
        )
        for gpu in node.gpus
    )
    return NodeView(
        state,
        gpus,
        frozenset(one.device.name for one in devices if one.claims),
        frozenset(one.device.name for one in devices if one.is_free),
        frozenset(one.device.name for one in devices if one.device.blocked or counters.problem),
    )


def silent_node(name: str, claims: Iterable[Object]) -> NodeView:
    """A node that publishes nothing, and the claims that have devices of it all the same."""
    pools = frozenset((name, pool_name(name)))
    return NodeView(NodeState(name, unpublished=_unpublished(pools, claims, ())))


def _unpublished(
    pools: frozenset[str], claims: Iterable[Object], published: Collection[str]
) -> tuple[Unpublished, ...]:
    held = (one for claim in claims for one in allocated(claim))
    return tuple(
        Unpublished(one.claim, one.device)
        for one in held
        if one.pool in pools and one.device not in published
    )


def device_states(node: PublishedNode, claims: Sequence[Object]) -> tuple[DeviceState, ...]:
    """Every device of the node with its holders. Raises AllocationFailed for a malformed claim."""
    return _device_states(node, claims, _counters(node, claims))


def _counters(node: PublishedNode, claims: Iterable[Object]) -> PoolCounters:
    held = Held()
    for claim in claims:
        held.add(claim)
    return counters_in(node.pools, held)


def _device_states(
    node: PublishedNode, claims: Iterable[Object], counters: PoolCounters
) -> tuple[DeviceState, ...]:
    holders: dict[tuple[str, str], list[Allocated]] = {}
    for claim in claims:
        for one in allocated(claim):
            holders.setdefault((one.pool, one.device), []).append(one)
    return tuple(
        _device_state(one, tuple(holders.get((one.pool, one.name), ())), counters) for one in node.devices
    )


def _device_state(
    device: PublishedDevice, holders: tuple[Allocated, ...], counters: PoolCounters
) -> DeviceState:
    taken = any(not one.admin_access for one in holders)
    # A held device consumes its counters itself, so these say nothing about it.
    blocked = device.blocked or counters.problem is not None
    excluded = not taken and not blocked and not counters.fits(device.name)
    left = counters.claims_left(device.name)
    if left is not None and (blocked or excluded):
        left = 0
    state: State = "held" if taken else "unavailable" if blocked else "excluded" if excluded else "free"
    return DeviceState(device, state, holders, left, state == "free" if left is None else left > 0)


def _tiers(devices: Iterable[DeviceState], counters: PoolCounters) -> dict[str, TierCount]:
    by_tier: dict[str, list[DeviceState]] = {}
    for one in devices:
        by_tier.setdefault(one.device.tier, []).append(one)
    return {tier: _tier(members, counters) for tier, members in sorted(by_tier.items())}


def _tier(devices: Sequence[DeviceState], counters: PoolCounters) -> TierCount:
    free = [one.device.name for one in devices if one.is_free]
    left = [one.claims_left for one in devices if one.claims_left is not None]
    return TierCount(
        devices=len(devices),
        allocated=sum(one.state == "held" for one in devices),
        unavailable=sum(one.device.blocked or counters.problem is not None for one in devices),
        free=len(free),
        at_once=counters.at_once(free),
        excluded=sum(one.state == "excluded" for one in devices),
        claims=sum(one.claims for one in devices),
        claims_left=sum(left) if left else None,
    )


def _tainted(devices: Iterable[PublishedDevice]) -> Iterator[Tainted]:
    """The tainted devices, grouped by GPU and taints."""
    sizes: Counter[str] = Counter()
    found: dict[tuple[str, int | None, tuple[Taint, ...]], list[str]] = {}
    for one in devices:
        sizes[one.address] += 1
        if one.taints:
            index = attribute(one.spec, "index")
            found.setdefault((one.address, index, one.taints), []).append(one.name)
    for (gpu, index, taints), names in sorted(found.items(), key=lambda item: (item[0][0], item[1])):
        yield Tainted(gpu, tuple(sorted(names)), sizes[gpu], taints, index)


def _places(devices: Iterable[PublishedDevice]) -> dict[str, tuple[str, int | None]]:
    """The GPU of each device, with its index."""
    return {one.name: (one.address, attribute(one.spec, "index")) for one in devices}


def _holdings(devices: Iterable[DeviceState]) -> dict[str, list[Holding]]:
    """What claims have of each GPU."""
    found: dict[str, list[Holding]] = {}
    for one in devices:
        for holder in one.holders:
            for on_gpu in one.device.lies_on:
                found.setdefault(on_gpu.gpu, []).append(_holding(one.device, holder, on_gpu))
    return found


def _holding(device: PublishedDevice, holder: Allocated, on_gpu: OnGpu) -> Holding:
    place = on_gpu.place
    return Holding(
        claim=holder.claim,
        pods=holder.pods,
        device=device.name,
        tier=device.tier,
        kind=device.kind,
        part=0.0 if holder.admin_access else on_gpu.part * shared_part(holder, device.spec),
        request=holder.request,
        device_class=holder.device_class,
        start=place[0] if place else None,
        size=place[1] if place else None,
        taken=holder.taken,
        share_id=holder.share_id,
        admin_access=holder.admin_access,
        trouble=holder.trouble,
        memory_bytes=None if holder.admin_access else _memory_bytes(holder, device.spec),
    )


def shared_part(holder: Allocated, device: Object) -> float:
    """The part of a device that a claim has, from 0 to 1: all of a device that is not shared."""
    if not device.get("allowMultipleAllocations"):
        return 1.0
    # The capacity of which the claim has the largest part counts: nobody else can have that part.
    parts = []
    for name, amount in holder.consumed:
        all_of_it = capacity_of(device, name) or 0
        if all_of_it > 0:
            parts.append(float((stored_amount(amount) or 0) / all_of_it))
    return min(1.0, max(parts, default=0.0))


def _memory_bytes(holder: Allocated, device: Object) -> int | None:
    """The memory that a claim has on each GPU of a device; None for a share without a limit."""
    # The scheduler writes every capacity of a shared device into consumedCapacity. A share by number did not
    # ask for memory, so that is "0" there, the default of the capacity's policy.
    consumed = dict(holder.consumed).get("memory")
    if consumed is not None:
        return int(stored_amount(consumed) or 0) or None
    return None if device.get("allowMultipleAllocations") else memory_per_gpu(device)
