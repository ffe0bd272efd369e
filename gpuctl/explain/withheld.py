"""What nodes do not offer for now, and why: partitions, devices about to change, memory that is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver.devices.memory_limits import MEMORY_LIMITS
from driver.devices.names import DRIVER_NAME
from driver.devices.taints import TAINT_CHANGING
from gpuctl.explain.findings import Finding
from gpuctl.node.share_words import why_not_limited
from kubernetes_rules.allocator.requests import RequestedClaim

Object = Mapping[str, Any]

_ASKED = ("memoryIsolation", MEMORY_LIMITS)
_MOST_NODES = 3
"""So many nodes are named of those that have the same reason."""


def withheld(slices: Iterable[Object]) -> tuple[Finding, ...]:
    """The GPUs of this driver that say why they are not offered in partitions, by node and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in slices:
        spec = one["spec"]
        if spec["driver"] != DRIVER_NAME:
            continue
        for device in spec.get("devices") or ():
            reason = ((device.get("attributes") or {}).get("migWithheld") or {}).get("string")
            if reason:
                found.setdefault((str(spec.get("nodeName")), str(reason)), []).append(str(device["name"]))
    return tuple(
        Finding(
            "withheld",
            f"{node}: partitions of {', '.join(dict.fromkeys(names))} are withheld: {reason}",
            "end what uses the GPU, or change the node configuration",
        )
        for (node, reason), names in sorted(found.items())
    )


def changing(slices: Iterable[Object], claims: Iterable[Object]) -> tuple[Finding, ...]:
    """The devices of this driver that go when their claims end: their GPUs will have another form."""
    holders: dict[tuple[str, str], list[str]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] == DRIVER_NAME:
                name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
                holders.setdefault((str(result["pool"]), str(result["device"])), []).append(name)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in slices:
        spec = one["spec"]
        for device in spec.get("devices") or () if spec["driver"] == DRIVER_NAME else ():
            held_by = tuple(dict.fromkeys(holders.get((str(spec["pool"]["name"]), str(device["name"])), ())))
            if held_by and any(taint["key"] == TAINT_CHANGING for taint in device.get("taints") or ()):
                found.setdefault((str(spec.get("nodeName")), held_by), []).append(str(device["name"]))
    return tuple(
        Finding(
            "changing",
            f"{node} is about to offer other devices: {', '.join(names)} "
            f"{'go' if len(names) > 1 else 'goes'} when {_ended(held_by)}",
            "look again then: what the node configuration wants is published within seconds",
        )
        for (node, held_by), names in sorted(found.items())
    )


def _ended(claims: Sequence[str]) -> str:
    return f"claim {claims[0]} ends" if len(claims) == 1 else f"claims {', '.join(claims)} end"


def unheld(slices: Iterable[Object], claims: Iterable[RequestedClaim]) -> tuple[Finding, ...]:
    """The shared devices of this driver to whose memory nobody holds a pod, by reason.

    None where no request asks what keeps the memory of shares apart.
    """
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
    for one in slices:
        spec = one["spec"]
        for device in spec.get("devices") or ():
            if spec["driver"] == DRIVER_NAME and _is_unheld(device):
                reason = why_not_limited(device)
                if reason is not None:
                    found.setdefault(reason, {})[str(spec.get("nodeName"))] = None
    return tuple(
        Finding(
            "withheld",
            f"{_named(nodes)}: nobody holds a share there to its memory: {reason}",
            "use a node that does, a share by MPS, or a class that does not insist on it",
        )
        for reason, nodes in sorted(found.items())
    )


def _is_unheld(device: Object) -> bool:
    isolation = (device.get("attributes") or {}).get("memoryIsolation", {}).get("string", "none")
    return bool(device.get("allowMultipleAllocations")) and isolation == "none"


def _named(nodes: Iterable[str]) -> str:
    names = sorted(nodes)
    more = len(names) - _MOST_NODES
    return ", ".join(names[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
