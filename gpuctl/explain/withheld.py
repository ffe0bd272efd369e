"""Finds what nodes do not offer now, and why: partitions, devices about to change, memory limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from driver.devices.memory_limits import MEMORY_LIMITS
from driver.devices.names import DRIVER_NAME
from driver.devices.taints import TAINT_CHANGING
from gpuctl.cli.output import some_of
from gpuctl.explain.findings import Finding
from gpuctl.fleet.devices import Object, address_of, attribute
from gpuctl.fleet.holders import allocated
from gpuctl.fleet.seen import said_lines
from gpuctl.plan.share_words import why_not_limited
from kubernetes_rules.allocator.requests import RequestedClaim

_ASKED = ("memoryIsolation", MEMORY_LIMITS)
_MOST_NODES = 3
"""How many nodes with the same reason are named."""


def withheld(slices: Iterable[Object]) -> tuple[Finding, ...]:
    """The GPUs that say why they are not offered in partitions, by node and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for spec, device in _own_devices(slices):
        if reason := attribute(device, "migWithheld"):
            found.setdefault((str(spec.get("nodeName")), str(reason)), []).append(str(device["name"]))
    return tuple(
        Finding(
            "withheld",
            f"{node}: partitions of {', '.join(dict.fromkeys(names))} are withheld: {reason}",
            "end what uses the GPU, or change the node configuration",
        )
        for (node, reason), names in sorted(found.items())
    )


def not_offered(slices: Iterable[Object], said: Iterable[Object]) -> tuple[Finding, ...]:
    """What controllers have said about GPUs that their nodes do not publish."""
    published: dict[str, set[str]] = {}
    for spec, device in _own_devices(slices):
        published.setdefault(str(spec.get("nodeName")), set()).add(address_of(device))
    return tuple(
        Finding("said", line, "do what the driver says there") for line in said_lines(said, published)
    )


def changing(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[Finding, ...]:
    """The devices that disappear when their claims end: their GPUs get another form then."""
    holders: dict[tuple[str, str], list[str]] = {}
    for one in (one for claim in claims for one in allocated(claim)):
        holders.setdefault((one.pool, one.device), []).append(one.claim)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for spec, device in _own_devices(slices):
        held_by = tuple(dict.fromkeys(holders.get((str(spec["pool"]["name"]), str(device["name"])), ())))
        if held_by and any(taint["key"] == TAINT_CHANGING for taint in device.get("taints") or ()):
            found.setdefault((str(spec.get("nodeName")), held_by), []).append(str(device["name"]))
    return tuple(
        Finding(
            "changing",
            f"{node} is about to offer other devices: {', '.join(names)} "
            f"{'disappear' if len(names) > 1 else 'disappears'} when {_ended(held_by)}",
            "try again then: the devices of the node configuration are published within seconds",
        )
        for (node, held_by), names in sorted(found.items())
    )


def _ended(claims: Sequence[str]) -> str:
    return f"claim {claims[0]} ends" if len(claims) == 1 else f"claims {', '.join(claims)} end"


def unheld(slices: Iterable[Object], claims: Iterable[RequestedClaim]) -> tuple[Finding, ...]:
    """The shared devices without memory limits, by the reason; only if a request asks for such limits."""
    expressions = (
        expression
        for claim in claims
        for alternatives in claim.requests
        for request in alternatives
        for expression in request.selectors
    )
    if not any(word in expression for expression in expressions for word in _ASKED):
        return ()
    found: dict[str, dict[str, None]] = {}
    for spec, device in _own_devices(slices):
        reason = why_not_limited(device) if _is_unheld(device) else None
        if reason is not None:
            found.setdefault(reason, {})[str(spec.get("nodeName"))] = None
    return tuple(
        Finding(
            "withheld",
            f"{some_of(sorted(nodes), _MOST_NODES)}: memory limits of shares are not enforced "
            f"there: {reason}",
            "use a node that enforces them, a share by MPS, or a class that does not require them",
        )
        for reason, nodes in sorted(found.items())
    )


def _is_unheld(device: Object) -> bool:
    isolation = attribute(device, "memoryIsolation")
    return bool(device.get("allowMultipleAllocations")) and isolation in (None, "none")


def _own_devices(slices: Iterable[Object]) -> Iterator[tuple[Object, Object]]:
    """The devices of this driver, each with the spec of its slice."""
    for spec in (one["spec"] for one in slices):
        if spec["driver"] == DRIVER_NAME:
            yield from ((spec, device) for device in spec.get("devices") or ())
