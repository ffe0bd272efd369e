"""Pods as ``kubectl get pods`` shows them. Go: kubernetes/pkg/printers/internalversion, printPod."""

from __future__ import annotations

from typing import Any

from envtest.embedded.shown.ages import age_of

Object = dict[str, Any]


def pod_cells(item: Object) -> list[Any]:
    """Name, ready containers, status, restarts, age, address, node, nominated node; no readiness gates."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    wide = [status.get("podIP"), spec.get("nodeName"), status.get("nominatedNodeName")]
    shown = [value or "<none>" for value in wide]
    age = age_of(item["metadata"].get("creationTimestamp"))
    return [*_first_cells(item), age, *shown, "<none>"]


def _first_cells(pod: Object) -> list[Any]:
    """Name, ready containers, status and restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        one["name"] for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"
    }
    # Sidecars count as containers, other init containers do not.
    total = len(spec.get("containers") or []) + len(sidecars)
    reason = status.get("reason") or status.get("phase") or ""
    conditions = status.get("conditions") or []
    if any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions
    ):
        # Shown although the phase is Pending.
        reason = "SchedulingGated"
    inits = status.get("initContainerStatuses") or []
    ready = sum(one["name"] in sidecars and bool(one.get("ready")) for one in inits)
    count = len(spec.get("initContainers") or [])
    starting = next(
        (text for index, one in enumerate(inits) if (text := _init_reason(one, index, count, sidecars))), ""
    )
    counted = inits
    if starting:
        reason = starting
    else:
        containers = status.get("containerStatuses") or []
        counted = [*(one for one in inits if one["name"] in sidecars), *containers]
        ready += sum(bool(one.get("ready")) and "running" in _container_state(one) for one in containers)
        reason = _main_reason(containers, conditions, reason)
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return [pod["metadata"]["name"], f"{ready}/{total}", reason, _restarts(counted)]


def _restarts(containers: list[Object]) -> str:
    """How often the containers were started again, and when the last of them had ended."""
    count = sum(one.get("restartCount") or 0 for one in containers)
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in containers]
    last = max(filter(None, ends), default=None)
    return f"{count} ({age_of(last)} ago)" if count and last else str(count)


def _container_state(container: Object) -> Object:
    return container.get("state") or {}


def _init_reason(container: Object, index: int, count: int, sidecars: set[str]) -> str:
    """The status of a pod that waits for this init container; empty when the container is done."""
    state = _container_state(container)
    ended, waiting = state.get("terminated"), state.get("waiting") or {}
    if ended is not None and ended.get("exitCode") == 0:
        return ""
    # A sidecar does its part by running.
    if container["name"] in sidecars and container.get("started"):
        return ""
    if ended is not None:
        return f"Init:{_end_reason(ended)}"
    if waiting.get("reason") and waiting["reason"] != "PodInitializing":
        return f"Init:{waiting['reason']}"
    return f"Init:{index}/{count}"


def _main_reason(containers: list[Object], conditions: list[Object], reason: str) -> str:
    failed, running = "", False
    # Backwards, so that of several reasons that of the first container stays.
    for container in reversed(containers):
        state = _container_state(container)
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end_reason(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and "running" in state:
            running = True
    # With one container that has ended well and one that runs, the pod is shown as running.
    if reason != "Completed":
        return reason
    is_ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    if running and is_ready:
        return "Running"
    return failed or ("NotReady" if running else reason)


def _end_reason(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
