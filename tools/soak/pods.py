"""Pods of every kind: what they ask for, what they have to see, and whether each ended as it should."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from driver.devices.names import parse_gpu_device_name, unshared_name
from envtest.client import paths
from envtest.client.api import ApiClient, Object
from envtest.client.errors import ApiRefused
from envtest.cluster import Process
from envtest.real.render import IMAGE
from tools.soak.judgement import Mark, may_fail
from tools.soak.plan import NAMESPACES, Pod

ADMINS = "admins"
REQUESTS: dict[str, dict[str, Any]] = {
    "whole": {"deviceClassName": "gpu.nvidia.com"},
    "layout": {"deviceClassName": "mig-large"},
    "dynamic": {"deviceClassName": "mig-small"},
    "time-sliced": {"deviceClassName": "shared-timesliced"},
    "mps": {"deviceClassName": "shared-mps", "capacity": {"requests": {"shares": "1"}}},
    "mps-memory": {"deviceClassName": "shared-mps", "capacity": {"requests": {"memory": "16Gi"}}},
    "vfio": {"deviceClassName": "vfio.gpu.nvidia.com"},
    "admin": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True},
}
"""What a claim asks for, by kind. Pods of the kind ``extended`` ask in their limits."""

_LOOK = (
    "cd /dev; echo gpus=$(ls | grep -c '^nvidia[0-9]') "
    "partitions=$(ls nvidia-caps 2>/dev/null | grep -c cap) "
    "vfio=$(ls vfio 2>/dev/null | grep -c '^[0-9]') mps=${CUDA_MPS_PIPE_DIRECTORY:+yes} "
    "limit=${CUDA_MPS_PINNED_DEVICE_MEM_LIMIT:+yes} > /dev/termination-log; "
)
_GPU, _PARTITION, _LIMITED = (
    "gpus=1 partitions=0 vfio=0 mps= limit=",
    "gpus=1 partitions=2 vfio=0 mps= limit=",
    "gpus=1 partitions=0 vfio=0 mps=yes limit=yes",
)
SEEN = {
    **dict.fromkeys(("whole", "extended", "admin", "time-sliced"), _GPU),
    **dict.fromkeys(("layout", "dynamic"), _PARTITION),
    **dict.fromkeys(("mps", "mps-memory"), _LIMITED),
    "vfio": "gpus=0 partitions=0 vfio=1 mps= limit=",
}
"""What the container of each kind of pod finds."""

PATIENCE_SECONDS = 400.0
"""From its place until its end; the kubelet prepares again after 90 s. At the end of a run, for all pods: the
scheduler tries a pod without a place again after 300 s."""

_EVENTS, _LOG_LINES = 8, 5


def prepare_namespaces(api: ApiClient) -> None:
    """Make the namespaces, and in each a template for each kind."""
    for name in (*NAMESPACES, ADMINS):
        labels = {"resource.kubernetes.io/admin-access": "true"} if name == ADMINS else {}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        for kind, exactly in REQUESTS.items():
            if (kind == "admin") == (name == ADMINS):
                requests = [{"name": "gpu", "exactly": exactly}]
                api.apply(
                    {
                        "apiVersion": "resource.k8s.io/v1",
                        "kind": "ResourceClaimTemplate",
                        "metadata": {"name": kind},
                        "spec": {"spec": {"devices": {"requests": requests}}},
                    },
                    name,
                )


def manifest(pod: Pod) -> Object:
    """The pod as an object: its container writes down what it sees, and sleeps."""
    container: Object = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"{_LOOK} exec sleep {pod.seconds if not pod.deleted else 100000}"],
    }
    spec: Object = {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    if pod.kind in REQUESTS:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": pod.kind}]
        container["resources"] = {"claims": [{"name": "gpu"}]}
    else:
        container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "labels": {"soak": "pod"}},
        "spec": spec,
    }


@dataclass(slots=True)
class Watched:
    """A pod of the plan with what was seen of it so far."""

    pod: Pod
    created: float
    scheduled: float | None = None
    running: float | None = None
    deleting: bool = False
    waits_for: str = "the API server"


@dataclass(slots=True)
class PodWatch:
    """Creates pods, deletes them when it is time, and judges each; ``failures`` says which failed and why.

    ``ran`` counts those that ran, by kind. ``clock`` gives the seconds since the run began.
    """

    api: ApiClient
    clock: Callable[[], float]
    marks: Sequence[Mark]
    plugin: Callable[[], Process]
    failures: list[str] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    _open: dict[str, Watched] = field(default_factory=dict)

    def unfinished(self, kind: str | None = None) -> int:
        """How many pods are not done: those of a kind, or all."""
        return sum(kind in (None, one.pod.kind) for one in list(self._open.values()))

    def waiting(self) -> list[str]:
        """What the pods that are not done wait for, and which ones."""
        found: dict[str, list[str]] = {}
        for name, one in sorted(self._open.items()):
            found.setdefault(one.waits_for, []).append(f"{name} ({self.clock() - one.created:.0f} s)")
        return [f"waits for {what}: {', '.join(names)}" for what, names in found.items()]

    def create(self, pod: Pod) -> None:
        """Create a pod, once the API server takes it."""
        self._open[pod.name] = Watched(pod, self.clock())
        insist(lambda: self.api.create(manifest(pod), pod.namespace))

    def look(self) -> None:
        """Compare all pods with what they should be; one look while the API server is away does nothing."""
        try:
            listed = self.api.list_objects("/api/v1/pods", labelSelector="soak=pod")
        except ApiRefused:
            return
        found = {one["metadata"]["name"]: one for one in listed}
        for name, watched in list(self._open.items()):
            if name in found:
                watched.waits_for = waits_for(found[name])
            try:
                if self._is_done(watched, found.get(name)):
                    self._open.pop(name)
            except ApiRefused:
                continue  # the next look asks again

    def give_up(self) -> None:
        """Count each pod as failed that is not done by now, when nothing disturbs and no other pods come."""
        for watched in self._open.values():
            pod = watched.pod
            self.failures.append(f"pod {pod.namespace}/{pod.name} did not end\n{self._evidence(pod)}")
        self._open.clear()

    def _is_done(self, watched: Watched, stored: Object | None) -> bool:
        pod, now = watched.pod, self.clock()
        path = paths.pod(pod.name, pod.namespace)
        if stored is None:
            # Between the entry here and the answer of the API server, the pod is not there yet.
            return watched.deleting
        phase = stored["status"].get("phase")
        wrong = ""
        if stored["spec"].get("nodeName") and watched.scheduled is None:
            watched.scheduled = now
        if phase in ("Running", "Succeeded") and watched.running is None:
            watched.running = now
            self.ran[pod.kind] += 1
        if phase == "Succeeded":
            wrong = self._unlike(pod, stored)
        elif phase == "Failed" and not watched.deleting:
            wrong = f"failed: {stored['status'].get('reason', '')} {stored['status'].get('message', '')}"
        elif watched.scheduled is not None and now - watched.scheduled > PATIENCE_SECONDS:
            wrong = f"is {phase} {PATIENCE_SECONDS:g} s after it was scheduled"
        if wrong and not may_fail(self.marks, self._gpus(stored), watched.created, now):
            self.failures.append(f"pod {pod.namespace}/{pod.name} {wrong}\n{self._evidence(pod)}")
        is_due = pod.deleted and watched.running is not None and now - watched.running > pod.seconds
        if wrong or phase == "Succeeded" or (is_due and not watched.deleting):
            self.api.delete(path)
            watched.deleting = True
        return bool(wrong)

    def _unlike(self, pod: Pod, stored: Object) -> str:
        """What a pod saw, if it should have seen something else."""
        (status,) = stored["status"]["containerStatuses"]
        seen = status["state"]["terminated"].get("message", "").strip()
        return "" if seen == SEEN[pod.kind] else f"saw {seen!r}, not {SEEN[pod.kind]!r}"

    def _gpus(self, stored: Object) -> frozenset[str]:
        """The PCI addresses of the GPUs of a pod's claim."""
        made = stored["status"].get("extendedResourceClaimStatus") or {}
        names = [made.get("resourceClaimName")]
        names += [one.get("resourceClaimName") for one in stored["status"].get("resourceClaimStatuses") or ()]
        gpus = set()
        for name in filter(None, names):
            claim = self.api.find(paths.resource_claim(name, stored["metadata"]["namespace"])) or {}
            allocation = (claim.get("status") or {}).get("allocation") or {"devices": {"results": []}}
            for result in allocation["devices"]["results"]:
                pci = parse_gpu_device_name(unshared_name(result["device"]))
                gpus.add(str(pci))
        return frozenset(gpus)

    def _evidence(self, pod: Pod) -> str:
        """The last events of a pod, and the end of the plugin's log."""
        selector = f"involvedObject.name={pod.name}"
        events = self.api.list_objects(paths.event(namespace=pod.namespace), fieldSelector=selector)
        kept = [one for one in events if one["reason"] != "MissingClusterDNS"][-_EVENTS:]
        told = [f"  event {one['reason']}: {one['message'][:300]}" for one in kept]
        log = self.plugin().log.splitlines()[-_LOG_LINES:]
        return "\n".join([*told, *(f"  plugin {line[:300]}" for line in log)])


def waits_for(stored: Object) -> str:
    """What a pod waits for, as its status says it."""
    status = stored["status"]
    if "deletionTimestamp" in stored["metadata"]:
        return "its removal by the kubelet"
    if not stored["spec"].get("nodeName"):
        told = (one.get("message") for one in status.get("conditions", ()) if one["type"] == "PodScheduled")
        return f"a place: {(next(told, None) or 'the scheduler has not tried').partition(' preemption:')[0]}"
    states = [one["state"] for one in status.get("containerStatuses", ())]
    reasons = [one["waiting"].get("reason", "not said") for one in states if "waiting" in one]
    return f"its container: {reasons[0]}" if reasons else f"its end, being {status.get('phase')}"


def insist(call: Callable[[], object], seconds: float = 60.0) -> None:
    """Make a request again until the API server answers; that the object is there already is an answer, too.

    Raises ApiRefused after that time.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except ApiRefused as error:
            if error.status == http.client.CONFLICT:
                return
            if time.monotonic() > until:
                raise
        time.sleep(0.5)
