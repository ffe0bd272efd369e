"""Says in the words of ``kubectl get pods`` how a pod is: ready containers, status and restarts."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def pod_cells(pod: Object) -> list[Any]:
    """Name, ready containers, status and restarts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        one["name"] for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or []) + len(sidecars)
    reason = status.get("reason") or status.get("phase") or ""
    conditions = status.get("conditions") or []
    if any(
        one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions
    ):
        reason = "SchedulingGated"
    inits = status.get("initContainerStatuses") or []
    ready = sum(one["name"] in sidecars and bool(one.get("ready")) for one in inits)
    count = len(spec.get("initContainers") or [])
    starting = next(
        (text for index, one in enumerate(inits) if (text := _init_reason(one, index, count, sidecars))), ""
    )
    if starting:
        restarts = sum(one.get("restartCount") or 0 for one in inits)
        reason = starting
    else:
        restarts = sum(one.get("restartCount") or 0 for one in inits if one["name"] in sidecars)
        containers = status.get("containerStatuses") or []
        restarts += sum(one.get("restartCount") or 0 for one in containers)
        ready += sum(bool(one.get("ready")) and "running" in _state(one) for one in containers)
        reason = _main_reason(containers, conditions, reason)
    if "deletionTimestamp" in pod["metadata"] and status.get("phase") not in ("Succeeded", "Failed"):
        reason = "Terminating"
    return [pod["metadata"]["name"], f"{ready}/{total}", reason, str(restarts)]


def _state(container: Object) -> Object:
    return container.get("state") or {}


def _init_reason(container: Object, index: int, count: int, sidecars: set[str]) -> str:
    """Why the pod still starts, because of this init container; empty when that has done its part."""
    state = _state(container)
    ended, waiting = state.get("terminated"), state.get("waiting") or {}
    if ended is not None and ended.get("exitCode") == 0:
        return ""
    if container["name"] in sidecars and container.get("started"):
        return ""
    if ended is not None:
        return f"Init:{_end_reason(ended)}"
    if waiting.get("reason") and waiting["reason"] != "PodInitializing":
        return f"Init:{waiting['reason']}"
    return f"Init:{index}/{count}"


def _main_reason(containers: list[Object], conditions: list[Object], reason: str) -> str:
    failed, running = "", False
    for container in reversed(containers):
        state = _state(container)
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end_reason(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and "running" in state:
            running = True
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
