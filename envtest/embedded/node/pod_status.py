"""Decides which containers of a pod are started next, and writes its status, as the kubelet does.

Go: computePodActions and computeInitContainerActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go and
kuberuntime_container.go, getPhase in pkg/kubelet/kubelet_pods.go. Rules for single exit codes, probes and
ephemeral containers are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.control.pod_claims import pod_claims
from envtest.embedded.node.containers import Container, RunningPod
from envtest.embedded.node.kubelet_claims import ClaimCache, devices_of
from envtest.embedded.node.kubelet_health import HealthCache

Object = dict[str, Any]

# Pods and nodes have no addresses of their own.
_HOST_IP = "127.0.0.1"

Last = Callable[[str], "Container | None"]
"""The last container of a name, None where none was started."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container waits, from the last attempt to start it: ``RunContainerError`` for example."""

    reason: str
    message: str = ""


def pod_status(
    pod: Object,
    running: RunningPod | None,
    waiting: Mapping[str, Waiting],
    claims: ClaimCache,
    health: HealthCache,
) -> Object:
    """The status of a pod; ``running`` is None before the runtime has it.

    ``waiting`` has the reasons why containers could not be started, by their names.
    """

    def last(name: str) -> Container | None:
        found = None if running is None else running.last(name)
        return None if found is None or _is_beginning(found) else found

    def statuses(containers: list[Object]) -> list[Object]:
        found = []
        for container in containers:
            status = _container_status(pod, container, running, waiting.get(container["name"]))
            resources = _resources_status(pod, container, claims, health) if status["started"] else []
            found.append({**status, **({"allocatedResourcesStatus": resources} if resources else {})})
        return found

    spec = pod["spec"]
    initial = list(spec.get("initContainers") or ())
    parts = {"containerStatuses": statuses(spec["containers"])}
    if initial:
        parts["initContainerStatuses"] = statuses(initial)
    ready = all(one["ready"] for shown in parts.values() for one in shown)
    conditions = {
        # Claims are prepared and the sandbox is there.
        "PodReadyToStartContainers": running is not None,
        "Initialized": _is_initialized(pod, last),
        "Ready": ready,
        "ContainersReady": ready,
        # Also of a pod that names its node itself.
        "PodScheduled": True,
    }
    return _status(pod, phase(pod, last), parts, {name: str(value) for name, value in conditions.items()})


def _resources_status(
    pod: Object, container: Mapping[str, Any], claims: ClaimCache, health: HealthCache
) -> list[Object]:
    """``allocatedResourcesStatus`` of a container: the health of each device of the claims it names."""
    names = {one.entry: one.claim for one in pod_claims(pod)}
    found = []
    for entry in container.get("resources", {}).get("claims", ()):
        if entry["name"] not in names:
            continue
        request = str(entry.get("request", ""))
        resources: dict[str, Object] = {}
        for driver, device in devices_of(claims, pod["metadata"]["namespace"], names[entry["name"]], request):
            # As the kubelet names a device of a claim in allocatedResourcesStatus.
            identity = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.name}"
            reported = health.of(driver, device.pool, device.name)
            resources.setdefault(identity, {"resourceID": identity, **reported})
        if resources:
            name = f"claim:{entry['name']}" + (f"/{request}" if request else "")
            found.append({"name": name, "resources": list(resources.values())})
    return found


def _container_status(
    pod: Object, container: Mapping[str, Any], running: RunningPod | None, waiting: Waiting | None
) -> Object:
    """Go: convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go."""
    image, runs = container.get("image", ""), None if running is None else running.runs.get(container["name"])
    status = {"name": container["name"], "image": image, "imageID": "", "restartCount": 0}
    if runs is None or _is_beginning(runs.last):
        creating = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
        shown = _waiting(waiting or Waiting(creating))
        return {**status, "ready": False, "started": False, "state": shown}
    run, before = runs.last, runs.before
    status |= {
        "imageID": f"embedded://{image}",
        "containerID": f"embedded://{run.id}",
        "restartCount": run.attempt,
    }
    if before is not None and before.end is not None:
        status["lastState"] = _terminated(before)
    end = run.end
    if end is None:
        running_state = {"running": {"startedAt": run.started_at}}
        return {**status, "ready": True, "started": True, "state": running_state}
    initial = container in (pod["spec"].get("initContainers") or ())
    done = initial and not is_sidecar(container) and end.exit_code == 0
    status |= {"ready": done, "started": False, "state": _terminated(run)}
    if waiting is not None and not done and restarts(pod, container, end.exit_code):
        # While it waits for its restart, the end that is the reason is shown as the last state.
        status |= {"lastState": _terminated(run), "state": _waiting(waiting)}
    return status


def _is_beginning(run: Container) -> bool:
    """Whether a container was started for the first time, and its command has printed nothing yet."""
    return run.end is None and not run.begun and not run.attempt


def _waiting(why: Waiting) -> Object:
    return {"waiting": {"reason": why.reason, **({"message": why.message} if why.message else {})}}


def _terminated(run: Container) -> Object:
    end = run.end
    assert end is not None
    message = {"message": end.message} if end.message else {}
    times = {"startedAt": run.started_at, "finishedAt": end.finished_at}
    ended = {"exitCode": end.exit_code, "reason": end.reason, **message, **times}
    return {"terminated": {**ended, "containerID": f"embedded://{run.id}"}}


def _status(
    pod: Object, phase: str, containers: Mapping[str, list[Object]], conditions: Mapping[str, str]
) -> Object:
    """The pod's status with these parts; fields of others stay, and the times of unchanged conditions."""
    before = pod.get("status", {})
    known = {one["type"]: one for one in before.get("conditions", ())}
    for kind, value in conditions.items():
        if known.get(kind, {}).get("status") != value:
            known[kind] = {"type": kind, "status": value, "lastTransitionTime": now()}
    return {
        **before,
        "phase": phase,
        # The kubelet's own come first, in its order.
        "conditions": [known.pop(kind) for kind in conditions] + list(known.values()),
        **containers,
        "hostIP": _HOST_IP,
        "podIP": _HOST_IP,
        "startTime": before.get("startTime") or now(),
        "qosClass": before.get("qosClass", "BestEffort"),
    }


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container keeps running next to the others."""
    return container.get("restartPolicy") == "Always"


def all_containers(pod: Object) -> list[Object]:
    """The containers of a pod in the order in which they are started, init containers first."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def due(pod: Object, last: Last) -> list[Object]:
    """The containers that have to be started; those in a back-off are included."""
    spec = pod["spec"]
    initial = spec.get("initContainers") or ()
    if _is_initialized(pod, last):
        found = [one for one in initial if is_sidecar(one) and has_ended(last(one["name"]))]
        return found + [one for one in spec["containers"] if _is_to_start(pod, one, last)]
    for index, container in enumerate(initial):
        run = last(container["name"])
        if run is None or (run.end is not None and (is_sidecar(container) or run.end.exit_code)):
            # Sidecars that were started earlier run on meanwhile, and are restarted.
            restarted = [one for one in initial[:index] if is_sidecar(one) and has_ended(last(one["name"]))]
            return [*restarted, *([container] if _is_to_start(pod, container, last) else [])]
        if run.end is None and not is_sidecar(container):
            return []
    # All init containers have ended well, or run on as sidecars.
    return list(spec["containers"])


def _is_initialized(pod: Object, last: Last) -> bool:
    """Whether all init containers have ended well: then one of the other containers was started."""
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
    initialized = _is_initialized(pod, last)
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
    # All have ended, and none is started again.
    return "Failed" if any(code for _, code in codes) else "Succeeded"
