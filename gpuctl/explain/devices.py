"""Finds which gate rules out each device of a node for a request, and why.

For a selector that is false it says what the devices have instead, for counters which claims took them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.kinds.registry import KINDS
from gpuctl.cli.output import some_of
from gpuctl.explain.findings import FITS, Outcome
from gpuctl.plan.node_gpus import ranges
from gpuctl.plan.share_words import STRATEGIES
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.refusals import Gate, Refusal, refusal
from kubernetes_rules.allocator.requests import Constraint, Request
from kubernetes_rules.allocator.selector_results import selector_device
from kubernetes_rules.errors import AllocationFailed

_ORDER = (*(gate.value for gate in Gate), FITS)

_ASKED = re.compile(r"""device\.(attributes|capacity)\[['"]([^'"]+)['"]\]\.(\w+)""")
_SHOWN = 3

_MEMORY_SLICE = "memory-slice-"


Unselected = dict[tuple[int, tuple[str, ...]], tuple[frozenset[int], list[Outcome]]]
"""The devices that selectors rule out: their positions and outcomes, by kind of node and selectors."""


def outcomes(
    allocator: Allocator,
    view: NodeView,
    request: Request,
    constraints: Sequence[Constraint],
    unselected: Unselected,
) -> tuple[Outcome, ...]:
    """All devices that pods on the node can use, grouped by gate and reason; devices that fit come last.

    What is found out for nodes that publish the same objects is kept in ``unselected``.
    """
    key = id(view.matching), request.selectors
    if key not in unselected:
        unselected[key] = _ruled_out(allocator, view, request)
    positions, found = unselected[key]
    others = [device for position, device in enumerate(view.devices) if position not in positions]
    found = [*found, *_grouped(allocator, view, request, others, constraints)]
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.gate), -len(one.devices), one.reason)))


def _ruled_out(
    allocator: Allocator, view: NodeView, request: Request
) -> tuple[frozenset[int], list[Outcome]]:
    """The devices of which a selector is false."""
    positions = []
    for position, device in enumerate(view.devices):
        with suppress(AllocationFailed):
            if allocator.selectors.first_false(device, request.selectors) is not None:
                positions.append(position)
    devices = [view.devices[position] for position in positions]
    return frozenset(positions), _grouped(allocator, view, request, devices, ())


def _grouped(
    allocator: Allocator,
    view: NodeView,
    request: Request,
    devices: Iterable[Device],
    constraints: Sequence[Constraint],
) -> list[Outcome]:
    grouped: dict[tuple[str, str], list[Device]] = {}
    claims: dict[tuple[str, str], tuple[str, ...]] = {}
    for device in devices:
        refused = refusal(allocator, view, request, device, constraints)
        if refused is None:
            where = (FITS, "available")
        elif refused.gate is Gate.OTHER_NODE:
            continue
        else:
            taken = taken_counters(allocator, view, device) if refused.gate is Gate.COUNTERS else None
            where = (refused.gate.value, taken or _reason(allocator, refused, device))
            claims[where] = refused.claims
        grouped.setdefault(where, []).append(device)
    return [
        Outcome(
            gate,
            _with_values(gate, reason, found),
            tuple(one.id.device for one in found),
            claims.get((gate, reason), ()),
        )
        for (gate, reason), found in grouped.items()
    ]


def fitting(allocator: Allocator, view: NodeView, request: Request, constraints: Sequence[Constraint]) -> int:
    """How many devices of the node nothing rules out, each considered alone."""
    return sum(refusal(allocator, view, request, device, constraints) is None for device in view.devices)


def _with_values(gate: str, reason: str, devices: Sequence[Device]) -> str:
    """The reason; for a false selector also the values that the devices have."""
    instead = _has_instead(reason, devices) if gate == Gate.SELECTOR else ""
    return f"{reason}; {instead}" if instead else reason


def _reason(allocator: Allocator, refused: Refusal, device: Device) -> str:
    """The refusal in a sentence, with the claims in the way."""
    claims = ", ".join(dict.fromkeys(refused.claims))
    match refused.gate:
        case Gate.SELECTOR:
            parts = allocator.selectors.false_parts(device, refused.detail)
            return f"not true for these: {' and '.join(parts)}"
        case Gate.TAINT:
            return f"tainted {refused.detail}, which the request does not tolerate"
        case Gate.IN_USE:
            return f"in use by claim {claims}"
        case Gate.CAPACITY | Gate.COUNTERS if claims:
            return f"{refused.detail}; used by claims: {claims}"
        case _:
            return refused.detail


def _has_instead(expression: str, devices: Iterable[Device]) -> str:
    """The devices' values of the attributes and capacities in an expression; empty if they have none."""
    values: dict[str, dict[str, None]] = {}
    for device in devices:
        seen = selector_device(device)
        # A driver may publish a name of its own domain with the domain or without it.
        for table, domain, name in _ASKED.findall(expression):
            kept = seen.attributes if table == "attributes" else seen.capacity
            value = kept.get(f"{domain}/{name}") or (kept.get(name) if domain == seen.driver else None)
            if value:
                values.setdefault(name, {})[_text(value)] = None
    return "; ".join(f"{name} is {_listed(list(found))}" for name, found in values.items())


def _text(value: Mapping[str, Any]) -> str:
    """A value of an attribute, ``{"string": "H100"}``, or of a capacity, ``{"value": "80Gi"}``."""
    one = value.get("value") or next(iter(value.values()))
    return str(one).lower() if isinstance(one, bool) else str(one)


def _listed(values: list[str]) -> str:
    return some_of(values, _SHOWN) if len(values) > _SHOWN else " or ".join(values)


def taken_counters(allocator: Allocator, view: NodeView, device: Device) -> str | None:
    """Which claims hold what a device of this driver would need, if its counters rule it out.

    None for a device of another driver, or if no claim explains it.
    """
    if device.id.driver != DRIVER_NAME:
        return None
    left = allocator.counters.of(view, device.id.pool_id)
    short = {key for key, nanos in device.takes.items() if left.get(key, 0) < nanos}
    parts = []
    for other in allocator.counters.takers(view, device.id.pool_id):
        takes = {key for key, nanos in other.takes.items() if nanos > 0}
        sharers = [claim for claim, _ in allocator.held.shares.get(other.id, ())]
        holders = tuple(dict.fromkeys((*allocator.held.exclusive.get(other.id, ()), *sharers)))
        if holders and short & takes:
            parts.append(_part(other, takes & short, takes, holders))
    return "; ".join(dict.fromkeys(parts)) or None


def _part(
    holder: Device,
    missing: Iterable[tuple[str, str]],
    takes: Iterable[tuple[str, str]],
    holders: Sequence[str],
) -> str:
    name = KINDS.parse(holder.id.device)
    claims = f"claim{'s' * (len(holders) > 1)} {', '.join(holders)}"
    if name is not None and name.takes_all:
        if name.shared is not None:
            how = STRATEGIES[name.shared.strategy]
            return f"its GPU is shared by {how}, and shares are held by {claims} ({holder.id.device})"
        return f"its GPU is held as a whole by {claims} ({holder.id.device})"
    # A partition takes memory slices and shares of engines; the places of slices say most to people.
    engines = sorted({counter for _, counter in missing if not counter.startswith(_MEMORY_SLICE)})
    places = (
        counter.removeprefix(_MEMORY_SLICE) for _, counter in takes if counter.startswith(_MEMORY_SLICE)
    )
    slices = sorted(int(place) for place in places if place.isdecimal())
    what = f"memory slice{'s' * (len(slices) > 1)} {ranges(slices)}"
    overlaps = any(counter.startswith(_MEMORY_SLICE) for _, counter in missing)
    if not overlaps:
        what = " and ".join(engine.replace("-", " ") for engine in engines)
    verb = "is" if overlaps and len(slices) == 1 else "are"
    return f"its GPU is cut: {what} {verb} held by {claims} ({holder.id.device})"
