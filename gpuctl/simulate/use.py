"""Counts what is in use and free in a cluster: devices by tier, GPUs by product, whole GPUs by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from driver.devices.names import DRIVER_NAME
from driver.kinds.registry import KINDS
from gpuctl.fleet.devices import attribute, tier_of
from gpuctl.simulate.cluster import Object, SimulatedCluster
from gpuctl.simulate.results import Fragments, GpuResult, TierResult
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.held import Held
from kubernetes_rules.allocator.pools import suffices
from kubernetes_rules.allocator.published import DeviceId
from kubernetes_rules.taints import untolerated_taint


def devices_in_use(slices: Sequence[Object], held: Held, free: Collection[DeviceId]) -> dict[str, TierResult]:
    """The devices of this driver by tier."""
    there, used, left = Counter[str](), Counter[str](), Counter[str]()
    for identity, device in _devices(slices):
        tier = tier_of(device)
        there[tier] += 1
        used[tier] += held.is_held(identity)
        left[tier] += identity in free
    return {tier: TierResult(count, used[tier], left[tier]) for tier, count in sorted(there.items())}


def gpus_in_use(slices: Sequence[Object], held: Held) -> dict[str, GpuResult]:
    """The GPUs by product. A GPU counts once, whatever it is offered as."""
    products: dict[tuple[str, str], str] = {}
    in_use = set()
    for identity, device in _devices(slices):
        parsed = KINDS.parse(identity.device)
        for gpu in parsed.gpus if parsed else (identity.device,):
            product = attribute(device, "productName")
            if product or (identity.pool, gpu) not in products:
                products[identity.pool, gpu] = str(product or "GPU of unknown product")
            if held.is_held(identity):
                in_use.add((identity.pool, gpu))
    there, used = Counter(products.values()), Counter(products[gpu] for gpu in in_use)
    return {product: GpuResult(count, used[product]) for product, count in sorted(there.items())}


def free_devices(cluster: SimulatedCluster, allocator: Allocator) -> set[DeviceId]:
    """The devices that nobody holds, without taints, for which the counters leave room."""
    found = set()
    for node in cluster.nodes:
        view = allocator.view(node)
        for device in view.devices:
            if allocator.held.is_held(device.id) or untolerated_taint(device.taints, ()) is not None:
                continue
            left = allocator.counters.of(view, device.id.pool_id) if device.consumes else {}
            if suffices(left, device):
                found.add(device.id)
    return found


def fragments(slices: Sequence[Object], free: Collection[DeviceId]) -> tuple[Fragments, ...]:
    """How many of the free whole GPUs pods could use that want several on one node."""
    there, left = Counter[str](), Counter[str]()
    for identity, device in _devices(slices):
        if tier_of(device) == "whole":
            there[identity.pool] += 1
            left[identity.pool] += identity in free
    largest, total = max(there.values(), default=0), sum(left.values())
    return tuple(
        Fragments(count, total, sum(number - number % count for number in left.values()))
        for count in (1, 2, 4, 8, 16)
        if count <= largest
    )


def _devices(slices: Sequence[Object]) -> Iterator[tuple[DeviceId, Object]]:
    """The devices of this driver."""
    for one in slices:
        if one["spec"]["driver"] == DRIVER_NAME:
            for device in one["spec"].get("devices") or ():
                yield DeviceId(DRIVER_NAME, one["spec"]["pool"]["name"], str(device["name"])), device
