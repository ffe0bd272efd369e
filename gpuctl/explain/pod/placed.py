"""Explains a pod that has a node already: it runs, cannot be prepared there, or has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuctl.explain.findings import Finding, Verdict
from gpuctl.explain.snapshot import event_time

Object = Mapping[str, Any]

_NOT_PREPARED = "FailedPrepareDynamicResources"
"""The reason of the kubelet's event when a claim cannot be prepared (pkg/kubelet/events)."""

_SANDBOX = "PodReadyToStartContainers"
"""True once the sandbox is there, which the kubelet makes after it has prepared all claims (KEP-3085)."""


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
    message = _not_prepared(pod, events)
    if message is not None:
        summary = f"it is placed on {node}, which cannot prepare its claims"
        return Placed("fails", summary, (Finding("prepare", message),))
    return Placed(
        "runs", f"it runs on {node}" if phase == "Running" else f"it is placed on {node} and starts"
    )


def _not_prepared(pod: Object, events: Sequence[Object]) -> str | None:
    """The kubelet's last message that claims cannot be prepared; None if they were prepared since.

    ``events`` are about the pod, the newest last.
    """
    failed = [event for event in events if event.get("reason") == _NOT_PREPARED]
    if not failed:
        return None
    # An event stays for an hour, whatever became of the pod meanwhile.
    since = max(_prepared_at(pod.get("status") or {}), default="")
    # Times are RFC 3339 in UTC, so the first 19 characters sort; an event of the same second came before.
    passed = since and event_time(failed[-1])[:19] <= since[:19]
    return None if passed else str(failed[-1].get("message", ""))


def _prepared_at(status: Object) -> Iterator[str]:
    """Times by which the pod's claims were prepared, from its status."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == _SANDBOX and condition.get("status") == "True":
            yield str(condition.get("lastTransitionTime") or "")
    for container in _containers(status):
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            for kind in ("running", "terminated"):
                yield str((state.get(kind) or {}).get("startedAt") or "")


def _ends(status: Object) -> Iterator[Finding]:
    """Why a pod failed: what its status says, then how its containers ended."""
    said = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    if said:
        yield Finding("failed", said)
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            reason = f" ({ended['reason']})" if ended.get("reason") else ""
            yield Finding(
                "failed", f"container {container['name']} ended with exit code {ended['exitCode']}{reason}"
            )


def _containers(status: Object) -> list[Object]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
