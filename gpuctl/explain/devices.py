"""What becomes of each device of a node for one request: which gate rules it out, and why."""

from __future__ import annotations

from collections.abc import Sequence

from gpuctl.explain.actual_values import has_instead
from gpuctl.explain.findings import FITS, Outcome
from gpuctl.explain.taken_counters import taken_counters
from kubernetes_rules.allocator.allocate import Allocator
from kubernetes_rules.allocator.constraints import Constraint
from kubernetes_rules.allocator.pools import NodeView
from kubernetes_rules.allocator.published import Device
from kubernetes_rules.allocator.refusals import Gate, Refusal, refusal
from kubernetes_rules.allocator.requests import Request
from kubernetes_rules.allocator.selector_results import selector_device
from kubernetes_rules.cel.selector import compile_selector
from kubernetes_rules.errors import RuleError

_ORDER = (*(gate.value for gate in Gate), FITS)


def outcomes(
    allocator: Allocator, view: NodeView, request: Request, constraints: Sequence[Constraint]
) -> tuple[Outcome, ...]:
    """All devices that the node can reach, grouped by gate and reason; those that fit come last."""
    grouped: dict[tuple[str, str], list[Device]] = {}
    claims: dict[tuple[str, str], tuple[str, ...]] = {}
    for device in view.devices:
        refused = refusal(allocator, view, request, device, constraints)
        if refused is None:
            where = (FITS, "nothing rules these out")
        elif refused.gate is Gate.OTHER_NODE:
            continue
        else:
            taken = taken_counters(allocator, view, device) if refused.gate is Gate.COUNTERS else None
            where = (refused.gate.value, taken or _reason(refused, device))
            claims[where] = refused.claims
        grouped.setdefault(where, []).append(device)
    ordered = sorted(grouped.items(), key=lambda item: (_ORDER.index(item[0][0]), -len(item[1]), item[0][1]))
    return tuple(
        Outcome(
            gate,
            _told(gate, reason, found),
            tuple(one.id.device for one in found),
            claims.get((gate, reason), ()),
        )
        for (gate, reason), found in ordered
    )


def fitting(allocator: Allocator, view: NodeView, request: Request, constraints: Sequence[Constraint]) -> int:
    """How many devices of the node nothing rules out, each by itself."""
    return sum(refusal(allocator, view, request, device, constraints) is None for device in view.devices)


def _told(gate: str, reason: str, devices: Sequence[Device]) -> str:
    """The reason, and where a selector is false of the devices, what they have instead."""
    instead = has_instead(reason, devices) if gate == Gate.SELECTOR else ""
    return f"{reason}; {instead}" if instead else reason


def _reason(refused: Refusal, device: Device) -> str:
    """The refusal in a sentence, with the claims that stand in the way."""
    claims = ", ".join(dict.fromkeys(refused.claims))
    match refused.gate:
        case Gate.SELECTOR:
            return f"not true for these: {' and '.join(_false_parts(refused.detail, device))}"
        case Gate.TAINT:
            return f"tainted {refused.detail}, which the request does not tolerate"
        case Gate.IN_USE:
            return f"in use by claim {claims}"
        case Gate.CAPACITY | Gate.COUNTERS if claims:
            return f"{refused.detail}; claims that take of it: {claims}"
        case _:
            return refused.detail


def _false_parts(expression: str, device: Device) -> Sequence[str]:
    try:
        return compile_selector(expression).false_parts(selector_device(device)) or (expression,)
    except RuleError:
        return (expression,)
