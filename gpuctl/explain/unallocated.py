"""Says why nodes have no device for a request that insists on memory which holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from driver.devices.memory_limits import MEMORY_LIMITS
from driver.devices.names import DRIVER_NAME
from gpuctl.explain.findings import Finding
from gpuctl.node.held_memory import why_not_limited
from kubernetes_rules.allocator.requests import RequestedClaim

Object = Mapping[str, Any]

_ASKED = ("memoryIsolation", MEMORY_LIMITS)
_MOST_NODES = 3
"""So many nodes are named of those that have the same reason."""


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
