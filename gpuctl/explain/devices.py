"""Finds which gate rules out each device of a node for a request, and why.

For a selector that is false it says what the devices have instead, for counters which claims took them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from driver.devices.names import DRIVER_NAME
from driver.devices.sharing import split_shared_suffix
from gpuctl.cli.output import some_of
from gpuctl.explain.findings import FITS, Outcome
from kubernetes_rules.allocator.allocate import Allocator, Gate, Refusal, refusal
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.requests import Constraint, Request, selector_device
from kubernetes_rules.errors import AllocationFailed

_ORDER = (*(gate.value for gate in Gate), FITS)

_ASKED = re.compile(r"""device\.(attributes|capacity)\[['"]([^'"]+)['"]\]\.(\w+)""")
_TYPE = re.compile(r"""device\.attributes\[['"][^'"]+['"]\]\.type ==""")
_SHOWN = 3

MISSES = "not true for these: "
"""How the reason begins for devices of which a selector is false."""

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
    """All devices that pods on the node can use, grouped by gate and reason; those of other forms come last.

    What is found out for nodes that publish the same objects is kept in ``unselected``.
    """
    key = id(view.matching), request.selectors
    if key not in unselected:
        unselected[key] = _ruled_out(allocator, view, request)
    positions, found = unselected[key]
    others = [device for position, device in enumerate(view.devices) if position not in positions]
    matching = _grouped(allocator, view, request, others, constraints)
    if matching:
        found = [replace(one, other_form=True) for one in found]

    def order(one: Outcome) -> tuple[bool, int, int, str]:
        return one.other_form, _ORDER.index(one.gate), -len(one.devices), one.reason

    return tuple(sorted((*matching, *found), key=order))


def _ruled_out(
    allocator: Allocator, view: NodeView, request: Request
) -> tuple[frozenset[int], list[Outcome]]:
    """The devices of which a selector is false; the nearest fail latest, and with the fewest parts."""
    positions = []
    grouped: dict[tuple[tuple[int, int], str], list[Device]] = {}
    for position, device in enumerate(view.devices):
        with suppress(AllocationFailed):
            wrong = allocator.selectors.first_false(device, request.selectors)
            if wrong is not None:
                positions.append(position)
                parts = allocator.selectors.false_parts(device, wrong)
                rank = request.selectors.index(wrong), -len(parts)
                # Of a device of another type most parts are false, and the type says it all.
                told = [part for part in parts if _TYPE.match(part)] or parts
                grouped.setdefault((rank, " and ".join(told)), []).append(device)
    nearest = max((rank for rank, _ in grouped), default=None)
    return frozenset(positions), [
        Outcome(
            Gate.SELECTOR.value,
            "; ".join(filter(None, (f"{MISSES}{parts}", _has_instead(parts, found)))),
            tuple(one.id.device for one in found),
            other_form=rank != nearest,
        )
        for (rank, parts), found in grouped.items()
    ]


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
            where = (refused.gate.value, taken or _reason(refused))
            claims[where] = refused.claims
        grouped.setdefault(where, []).append(device)
    return [
        Outcome(*where, tuple(one.id.device for one in found), claims.get(where, ()))
        for where, found in grouped.items()
    ]


def fitting(allocator: Allocator, view: NodeView, request: Request, constraints: Sequence[Constraint]) -> int:
    """How many devices of the node nothing rules out, each considered alone."""
    return sum(refusal(allocator, view, request, device, constraints) is None for device in view.devices)


def _reason(refused: Refusal) -> str:
    """The refusal in a sentence, with the claims in the way."""
    claims = ", ".join(dict.fromkeys(refused.claims))
    match refused.gate:
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
    device = holder.id.device
    claims = f"claim{'s' * (len(holders) > 1)} {', '.join(holders)}"
    if holder.attribute(f"{DRIVER_NAME}/profile") is None:  # neither a partition nor a vGPU
        _, form = split_shared_suffix(device)
        if form is None:
            return f"its GPU is held as a whole by {claims} ({device})"
        how = "MPS" if form.strategy == "MPS" else "time-slicing"
        return f"its GPU is shared by {how}, and shares are held by {claims} ({device})"
    # A partition takes memory slices and shares of engines; the places of slices say most to people.
    slices = sorted(
        int(place) for _, name in takes if (place := name.removeprefix(_MEMORY_SLICE)).isdecimal()
    )
    if any(name.startswith(_MEMORY_SLICE) for _, name in missing) and slices:
        what = f"slice {slices[0]} is" if len(slices) == 1 else f"slices {slices[0]}-{slices[-1]} are"
        return f"its GPU is cut: memory {what} held by {claims} ({device})"
    engines = sorted({name.replace("-", " ") for _, name in missing})
    return f"its GPU is cut: {' and '.join(engines)} are held by {claims} ({device})"
