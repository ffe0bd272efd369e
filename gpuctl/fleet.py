"""What the GPUs of a cluster are, by node and tier: how many are allocated, free or unwell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from driver.names import DRIVER_NAME

Object = Mapping[str, Any]


@dataclass(slots=True)
class TierCount:
    """Devices of one tier on one node. ``claims`` counts those that share a device each by itself."""

    devices: int = 0
    allocated: int = 0
    unwell: int = 0
    free: int = 0
    claims: int = 0


@dataclass(frozen=True, slots=True)
class Unwell:
    """A device that takes no new claims, or says that it will not, and its taints."""

    device: str
    taints: tuple[str, ...]


@dataclass(slots=True)
class NodeState:
    """One node that publishes GPUs; ``pool_problem`` says why nothing of its pool can be allocated."""

    name: str
    product: str | None = None
    tiers: dict[str, TierCount] = field(default_factory=dict)
    unwell: list[Unwell] = field(default_factory=list)
    pool_problem: str | None = None


def fleet(slices: Iterable[Object], claims: Iterable[Object]) -> list[NodeState]:
    """The nodes with GPUs of this driver, by name."""
    holders = _holders(claims)
    nodes: dict[str, NodeState] = {}
    for name, members in sorted(_by_node(slices).items()):
        newest = max(int(one["spec"]["pool"]["generation"]) for one in members)
        current = [one for one in members if int(one["spec"]["pool"]["generation"]) == newest]
        state = nodes[name] = NodeState(name)
        wanted = int(current[0]["spec"]["pool"]["resourceSliceCount"])
        if len(current) != wanted:
            state.pool_problem = f"{len(current)} of {wanted} slices of generation {newest} are there"
        for one in sorted(current, key=lambda item: str(item["metadata"]["name"])):
            pool = one["spec"]["pool"]["name"]
            for device in one["spec"].get("devices") or ():
                _count(state, device, holders[pool, device["name"]])
    return list(nodes.values())


def tier_of(device: Object) -> str:
    """The form in which a device is handed out: ``whole``, ``mig 1g.10gb``, ``shared`` and so on."""
    form = _value(device, "type") or "gpu"
    if form == "mig":
        name = f"mig {_value(device, 'profile') or '?'}"
    else:
        name = "whole" if form == "gpu" else str(form)
    if device.get("allowMultipleAllocations"):
        return "shared" if name == "whole" else f"{name}, shared"
    return name


def _by_node(slices: Iterable[Object]) -> dict[str, list[Object]]:
    nodes: dict[str, list[Object]] = {}
    for one in slices:
        node = one["spec"].get("nodeName")
        if one["spec"]["driver"] == DRIVER_NAME and node:
            nodes.setdefault(node, []).append(one)
    return nodes


def _holders(claims: Iterable[Object]) -> Counter[tuple[str, str]]:
    """How many claims hold each device, by pool and name; those that only look on are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        counts.update(
            (result["pool"], result["device"])
            for result in allocation.get("devices", {}).get("results") or ()
            if result["driver"] == DRIVER_NAME and not result.get("adminAccess")
        )
    return counts


def _count(state: NodeState, device: Object, holders: int) -> None:
    state.product = state.product or _value(device, "productName")
    tier = state.tiers.setdefault(tier_of(device), TierCount())
    tier.devices += 1
    tier.claims += holders
    taints = device.get("taints") or ()
    if taints:
        told = tuple(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in taints)
        state.unwell.append(Unwell(str(device["name"]), told))
    blocked = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in taints)
    tier.unwell += blocked
    tier.allocated += holders > 0
    tier.free += not holders and not blocked


def _value(device: Object, name: str) -> Any:
    return next(iter((device.get("attributes") or {}).get(name, {}).values()), None)
