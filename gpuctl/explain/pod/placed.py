"""Explains a pod that has a node already: it runs, cannot start there, or has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.explain.findings import Finding, Verdict
from gpuctl.fleet.pods import container_statuses, not_prepared, stuck_containers

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """The verdict about a pod that does not wait for devices."""

    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()


def placed(pod: Object, events: Sequence[Object]) -> Placed | None:
    """The state of a pod that has a node or has ended; None while it waits for a node."""
    status, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    phase = status.get("phase", "Pending")
    where = f" on {node}" if node else ""
    if phase == "Succeeded":
        return Placed("succeeded", f"it has ended well{where}")
    if phase == "Failed":
        return Placed("failed", f"it has failed{where}", tuple(_ends(status)))
    if not node:
        return Placed("runs", f"its phase is {phase}") if phase == "Running" else None
    message = not_prepared(pod, events)
    if message is not None:
        summary = f"it is placed on {node}, which cannot prepare its claims"
        return Placed("fails", summary, (Finding("prepare", message),))
    stuck = tuple(Finding("container", f"container {one}") for one in stuck_containers(pod))
    if phase == "Running":
        return Placed("runs", f"it runs on {node}", stuck)
    if stuck:
        return Placed("fails", f"it is placed on {node}, and cannot start there", stuck)
    return Placed("runs", f"it is placed on {node} and starts")


def _ends(status: Object) -> Iterator[Finding]:
    """Why a pod failed: what its status says, then how its containers ended."""
    said = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    if said:
        yield Finding("failed", said)
    for container in container_statuses(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = f" ({ended['reason']})" if ended.get("reason") else ""
            yield Finding(
                "failed", f"container {container['name']} ended with exit code {ended['exitCode']}{reason}"
            )
