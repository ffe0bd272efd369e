"""Writes the status of pods as the kubelet does: phase, conditions, containers, and the health of devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from envtest.embedded.control.objects import now, uid_of
from envtest.embedded.control.pod_claims import pod_claims
from envtest.embedded.node.kubelet_claims import ClaimCache, devices_of

if TYPE_CHECKING:
    from envtest.embedded.node.container_runtime import RunningPod
    from envtest.embedded.node.kubelet_health import HealthMemory

Object = dict[str, Any]

HOST_IP = "127.0.0.1"
_READINESS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


def waiting_status(pod: Object, reason: str, message: str = "") -> Object:
    """The status of a pod whose containers cannot be started yet, for a reason such as ContainerCreating."""
    waiting = {"reason": reason, **({"message": message} if message else {})}
    containers = [
        {**_container_status(container, ready=False), "state": {"waiting": waiting}}
        for container in pod["spec"]["containers"]
    ]
    ready = {"Initialized": "True"}
    return _status(pod, "Pending", containers, {name: ready.get(name, "False") for name in _READINESS})


def running_status(pod: Object, running: RunningPod, claims: ClaimCache, health: HealthMemory) -> Object:
    """The status of a pod whose containers run."""
    containers = []
    for container in pod["spec"]["containers"]:
        status = _container_status(container, ready=True)
        status["containerID"] = f"embedded://{uid_of(pod)}-{container['name']}"
        status["state"] = {"running": {"startedAt": running.started_at}}
        told = resources_status(pod, container, claims, health)
        if told:
            status["allocatedResourcesStatus"] = told
        containers.append(status)
    return _status(pod, "Running", containers, dict.fromkeys(_READINESS, "True"))


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


def _container_status(container: Mapping[str, Any], *, ready: bool) -> Object:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"embedded://{image}" if ready else "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
    }


def _status(pod: Object, phase: str, containers: list[Object], conditions: Mapping[str, str]) -> Object:
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
        "containerStatuses": containers,
        "hostIP": HOST_IP,
        "podIP": HOST_IP,
        "startTime": before.get("startTime") or now(),
        "qosClass": before.get("qosClass", "BestEffort"),
    }
