"""Finds the first check that keeps a device from being allocated to a request now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.capacity import shortage
from kubernetes_rules.allocator.counters import exhausted
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.requests import Constraint, Request
from kubernetes_rules.allocator.selector_results import Unanswered
from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.taints import untolerated_taint


class Gate(StrEnum):
    """The checks, in the order in which they are made here: lasting reasons before passing ones.

    The search itself first checks whether a device is in use, since that is cheap. The order does not change
    whether a device is refused.
    """

    SELECTOR = "selector"
    SELECTOR_FAILED = "selector-failed"
    OTHER_NODE = "other-node"
    TAINT = "taint"
    IN_USE = "in-use"
    CAPACITY = "capacity"
    CAPACITY_FAILED = "capacity-failed"
    COUNTERS = "counters"
    CONSTRAINT = "constraint"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first check that a device fails, with a sentence or an expression as its detail.

    ``claims`` are the claims that are in the way, if any.
    """

    gate: Gate
    detail: str
    claims: tuple[str, ...] = ()


def refusal(
    allocator: Allocator,
    view: NodeView,
    request: Request,
    device: Device,
    constraints: Iterable[Constraint] = (),
) -> Refusal | None:
    """Why the device cannot be allocated to the request, None if it can when nothing else is requested.

    The device is one of ``view.devices``. Of constraints only a missing attribute is reported: whether
    values of several devices go together depends on the devices that are chosen.
    """
    return (
        _by_selector(allocator, request, device)
        or _by_node(view, device)
        or _by_taint(request, device)
        or _in_use(allocator, request, device)
        or _by_capacity(allocator, request, device)
        or _by_counters(allocator, view, device)
        or _by_constraint(request, device, constraints)
    )


def _in_use(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    holders = allocator.held.exclusive.get(device.id)
    if not holders or request.admin_access:
        return None
    return Refusal(Gate.IN_USE, f"in use by {', '.join(holders)}", tuple(holders))


def _by_selector(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    try:
        wrong = allocator.selectors.first_false(device, request.selectors)
    except Unanswered as error:
        return Refusal(Gate.SELECTOR_FAILED, error.reason)
    except AllocationFailed as error:
        return Refusal(Gate.SELECTOR_FAILED, error.what)
    return None if wrong is None else Refusal(Gate.SELECTOR, wrong)


def _by_node(view: NodeView, device: Device) -> Refusal | None:
    try:
        if view.selects(device):
            return None
    except AllocationFailed as error:
        return Refusal(Gate.OTHER_NODE, error.what)
    return Refusal(Gate.OTHER_NODE, f"the device is not for node {view.node.name}")


def _by_capacity(allocator: Allocator, request: Request, device: Device) -> Refusal | None:
    try:
        short = shortage(device, request.capacity_of(device), allocator.held.capacity_taken(device.id), {})
    except AllocationFailed as error:
        return Refusal(Gate.CAPACITY_FAILED, error.what)
    if short is None:
        return None
    return Refusal(
        Gate.CAPACITY, str(short), tuple(claim for claim, _ in allocator.held.shares.get(device.id, ()))
    )


def _by_counters(allocator: Allocator, view: NodeView, device: Device) -> Refusal | None:
    if not device.consumes or (device.allow_multiple and device.id in allocator.held.shares):
        return None
    short = exhausted(allocator.counters.of(view, device.id.pool_id), device)
    if short is None:
        return None
    pool = view.pool_of[device.id.pool_id]
    sets = {name for name, _ in device.consumes}
    claims: dict[str, None] = {}
    for other in allocator.counters.takers(view, pool.id):
        if sets.isdisjoint(name for name, _ in other.consumes):
            continue
        claims |= dict.fromkeys(allocator.held.exclusive.get(other.id, ()))
        claims |= dict.fromkeys(claim for claim, _ in allocator.held.shares.get(other.id, ()))
    whole = dict(dict(pool.counter_sets)[short.counter_set])[short.counter]
    return Refusal(Gate.COUNTERS, short.described(whole), tuple(claims))


def _by_taint(request: Request, device: Device) -> Refusal | None:
    taint = untolerated_taint(device.taints, request.tolerations)
    if taint is None:
        return None
    value = f"={taint['value']}" if taint.get("value") else ""
    return Refusal(Gate.TAINT, f"{taint.get('key')}{value}:{taint.get('effect')}")


def _by_constraint(request: Request, device: Device, constraints: Iterable[Constraint]) -> Refusal | None:
    for one in constraints:
        if one.applies_to(request.names) and device.attribute(one.attribute) is None:
            return Refusal(Gate.CONSTRAINT, f"it has no attribute {one.attribute}")
    return None
