"""Writes the status of pods as the kubelet does: phase, conditions, containers, and the health of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envtest.embedded.control.objects import now
from envtest.embedded.control.pod_claims import pod_claims
from envtest.embedded.node.kubelet_claims import ClaimCache, devices_of
from envtest.embedded.node.pod_progress import is_initialized, is_sidecar, phase, restarts

if TYPE_CHECKING:
    from envtest.embedded.node.containers import Container, RunningPod
    from envtest.embedded.node.kubelet_health import HealthMemory

Object = dict[str, Any]

HOST_IP = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container waits, as the kubelet keeps it from its last try: ``RunContainerError`` for example."""

    reason: str
    message: str = ""


def pod_status(
    pod: Object,
    running: RunningPod | None,
    waiting: Mapping[str, Waiting],
    claims: ClaimCache,
    health: HealthMemory,
) -> Object:
    """The status of a pod that the runtime has, or None of it has yet.

    ``waiting`` tells by the names of containers why they could not be started.
    """

    def last(name: str) -> Container | None:
        return None if running is None else running.last(name)

    def statuses(containers: list[Object]) -> list[Object]:
        found = []
        for container in containers:
            status = _container_status(pod, container, running, waiting.get(container["name"]))
            told = resources_status(pod, container, claims, health) if status["started"] else []
            found.append({**status, **({"allocatedResourcesStatus": told} if told else {})})
        return found

    spec = pod["spec"]
    initial = list(spec.get("initContainers") or ())
    parts = {"containerStatuses": statuses(spec["containers"])}
    if initial:
        parts["initContainerStatuses"] = statuses(initial)
    ready = all(one["ready"] for shown in parts.values() for one in shown)
    conditions = {
        "PodReadyToStartContainers": running is not None,
        "Initialized": is_initialized(pod, last),
        "ContainersReady": ready,
        "Ready": ready,
    }
    return _status(pod, phase(pod, last), parts, {name: str(value) for name, value in conditions.items()})


def resources_status(
    pod: Object, container: Mapping[str, Any], claims: ClaimCache, health: HealthMemory
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
            identity = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.name}"
            told = health.of(driver, device.pool, device.name)
            resources.setdefault(identity, {"resourceID": identity, **told})
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
    if runs is None:
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
        status |= {"lastState": _terminated(run), "state": _waiting(waiting)}
    return status


def _waiting(why: Waiting) -> Object:
    return {"waiting": {"reason": why.reason, **({"message": why.message} if why.message else {})}}


def _terminated(run: Container) -> Object:
    end = run.end
    assert end is not None
    told = {"message": end.message} if end.message else {}
    times = {"startedAt": run.started_at, "finishedAt": end.finished_at}
    ended = {"exitCode": end.exit_code, "reason": end.reason, **told, **times}
    return {"terminated": {**ended, "containerID": f"embedded://{run.id}"}}


def _status(
    pod: Object, phase: str, containers: Mapping[str, list[Object]], conditions: Mapping[str, str]
) -> Object:
    """The pod's status with these parts; what others wrote there stays, and times of what did not change."""
    before = pod.get("status", {})
    known = {one["type"]: one for one in before.get("conditions", ())}
    for kind, value in conditions.items():
        if known.get(kind, {}).get("status") != value:
            known[kind] = {"type": kind, "status": value, "lastTransitionTime": now()}
    return {
        **before,
        "phase": phase,
        "conditions": list(known.values()),
        **containers,
        "hostIP": HOST_IP,
        "podIP": HOST_IP,
        "startTime": before.get("startTime") or now(),
        "qosClass": before.get("qosClass", "BestEffort"),
    }
