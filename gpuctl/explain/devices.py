"""At which gate each device of a node falls for one request, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver.cel.selector import compile_selector

from driver.allocator.allocate import AllocationFailed, Allocator
from driver.allocator.capacity import shortage
from driver.allocator.counters import available_counters, exhausted
from driver.allocator.gates import selector_device, untolerated_taint
from driver.allocator.node_view import NodeView
from driver.allocator.published import Device
from driver.allocator.requests import Request
from driver.errors import DriverError
from gpuctl.explain.findings import Fall, Gate
from gpuctl.explain.nodes import taint_text

Object = dict[str, Any]

_ORDER: tuple[Gate, ...] = ("selector", "error", "taint", "capacity", "in-use", "counters", "fits")
_FITS = "nothing stands against these"


def falls(allocator: Allocator, view: NodeView, request: Request) -> tuple[Fall, ...]:
    """All devices that the node can reach, grouped by gate and reason; those that fit come last."""
    grouped: dict[tuple[Gate, str], list[str]] = {}
    for device in view.devices:
        try:
            if not view.selects(device):
                continue
            where = _gate(allocator, view, request, device)
        except AllocationFailed as error:
            where = ("error", error.what)
        grouped.setdefault(where, []).append(device.id.device)
    ordered = sorted(grouped.items(), key=lambda item: (_ORDER.index(item[0][0]), -len(item[1]), item[0][1]))
    return tuple(Fall(gate, reason, tuple(names)) for (gate, reason), names in ordered)


def _gate(allocator: Allocator, view: NodeView, request: Request, device: Device) -> tuple[Gate, str]:
    """Raises AllocationFailed where a selector, or a capacity, cannot be judged."""
    held = allocator.held
    expression = allocator.selectors.first_false(device, request.selectors)
    if expression is not None:
        return "selector", _false_parts(expression, device)
    taint = untolerated_taint(device, request.tolerations)
    if taint is not None:
        return "taint", f"tainted {taint_text(taint)}, which the request does not tolerate"
    short = shortage(device, request.capacity, {}, {})
    if short is not None:
        return "capacity", short
    if not request.admin_access and device.id in held.exclusive:
        return "in-use", f"in use by claim {_names(held.exclusive[device.id])}"
    short = shortage(device, request.capacity, held.capacity_taken(device.id), {})
    if short is not None:
        users = _names(claim for claim, _ in held.shares.get(device.id, ()))
        return "capacity", f"{short}; the rest is taken by claim {users}"
    already_shared = device.allow_multiple and device.id in held.shares
    if device.consumes and not already_shared:
        pool = view.pool_of[device.id.pool_id]
        empty = exhausted(available_counters(pool, held), device)
        if empty is not None:
            return "counters", f"{empty} by claim {_names(_consumers(allocator, pool.devices, device))}"
    return "fits", _FITS


def _consumers(allocator: Allocator, devices: Iterable[Device], device: Device) -> list[str]:
    """The claims that hold devices which take from the same counter sets."""
    sets = {name for name, _ in device.consumes}
    found: list[str] = []
    for other in devices:
        if sets & {name for name, _ in other.consumes}:
            found += allocator.held.exclusive.get(other.id, ())
            found += [claim for claim, _ in allocator.held.shares.get(other.id, ())]
    return found


def _names(claims: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(claims)) or "nobody that is known"


def _false_parts(expression: str, device: Device) -> str:
    try:
        parts: Sequence[str] = compile_selector(expression).false_parts(selector_device(device))
    except DriverError:
        parts = ()
    return f"not true for these: {' and '.join(parts or (expression,))}"


def with_rule_taints(slices: Iterable[Object], rules: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The slices with the taints of DeviceTaintRules on the devices that they select."""
    applied = [(rule["spec"].get("deviceSelector"), rule["spec"]["taint"]) for rule in rules]
    return [_tainted(one, applied) for one in slices] if applied else list(slices)


def _tainted(one: Object, rules: Sequence[tuple[Mapping[str, str] | None, Object]]) -> Object:
    spec = one["spec"]
    devices = []
    for device in spec.get("devices") or ():
        names = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
        extra = [
            taint
            for selector, taint in rules
            if selector is not None and all(names.get(key) == value for key, value in selector.items())
        ]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *extra]} if extra else device)
    return {**one, "spec": {**spec, "devices": devices}} if devices else one
