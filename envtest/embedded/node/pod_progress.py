"""Decides as the kubelet does which containers of a pod are started next, and what phase the pod is in.

Go: computePodActions and computeInitContainerActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go and
kuberuntime_container.go, getPhase in pkg/kubelet/kubelet_pods.go. Rules for single exit codes, probes and
ephemeral containers are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envtest.embedded.node.containers import Container

Object = dict[str, Any]
Last = Callable[[str], "Container | None"]
"""The last container of a name, None where none was started."""


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container runs on beside the others."""
    return container.get("restartPolicy") == "Always"


def all_containers(pod: Object) -> list[Object]:
    """The containers of a pod in the order in which they are started, init containers first."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def due(pod: Object, last: Last) -> list[Object]:
    """The containers that are to run and do not, those included that are in back-off."""
    spec = pod["spec"]
    initial = spec.get("initContainers") or ()
    if is_initialized(pod, last):
        found = [one for one in initial if is_sidecar(one) and has_ended(last(one["name"]))]
        return found + [one for one in spec["containers"] if _is_to_start(pod, one, last)]
    for index, container in enumerate(initial):
        run = last(container["name"])
        if run is None or (run.end is not None and (is_sidecar(container) or run.end.exit_code)):
            restarted = [one for one in initial[:index] if is_sidecar(one) and has_ended(last(one["name"]))]
            return [*restarted, *([container] if _is_to_start(pod, container, last) else [])]
        if run.end is None and not is_sidecar(container):
            return []
    return list(spec["containers"])


def is_initialized(pod: Object, last: Last) -> bool:
    """Whether all init containers were done once: then the other containers were begun."""
    spec = pod["spec"]
    return not spec.get("initContainers") or any(last(one["name"]) for one in spec["containers"])


def has_ended(run: Container | None) -> bool:
    """Whether a container was started and runs no longer."""
    return run is not None and run.end is not None


def restarts(pod: Object, container: Mapping[str, Any], exit_code: int) -> bool:
    """Whether a container that ended so is started again."""
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy", "Always")
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code))


def _is_to_start(pod: Object, container: Mapping[str, Any], last: Last) -> bool:
    run = last(container["name"])
    if run is None:
        return True
    return run.end is not None and restarts(pod, container, run.end.exit_code)


def phase(pod: Object, last: Last) -> str:
    """The phase of a pod that is not deleted."""
    spec = pod["spec"]
    initial = spec.get("initContainers") or ()
    initialized = is_initialized(pod, last)
    waits = False
    for container in initial:
        run = last(container["name"])
        if is_sidecar(container):
            waits |= run is None and not initialized
        elif not has_ended(run):
            waits |= not initialized
        elif run is not None and run.end is not None and run.end.exit_code:
            if not restarts(pod, container, run.end.exit_code):
                return "Failed"
            waits = True
    runs = [(one, last(one["name"])) for one in spec["containers"]]
    if waits or any(run is None for _, run in runs):
        return "Pending"
    codes = [
        (restarts(pod, one, run.end.exit_code), run.end.exit_code)
        for one, run in runs
        if run is not None and run.end is not None
    ]
    if len(codes) < len(runs) or any(again for again, _ in codes):
        return "Running"
    return "Failed" if any(code for _, code in codes) else "Succeeded"
