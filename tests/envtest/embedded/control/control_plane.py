"""An API server with scheduler, claim controller and taint eviction, and the objects of their tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.control.claim_controller import EmbeddedClaimController
from envtest.embedded.control.disruption_controller import EmbeddedDisruptionController
from envtest.embedded.control.garbage_collector import EmbeddedGarbageCollector
from envtest.embedded.control.namespace_controller import EmbeddedNamespaceController
from envtest.embedded.control.scheduler import EmbeddedScheduler
from envtest.embedded.control.taint_eviction import EmbeddedTaintEviction
from envtest.embedded.control.workloads.controller import EmbeddedWorkloadController
from tests.clusters import EmbeddedApiServer, Object
from tests.eventually import eventually

GROUP = "resource.k8s.io"
RESOURCE = f"/apis/{GROUP}/v1"
CLASS = "gpu.nvidia.com"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"


class ControlPlane:
    """A cluster of one node and one class, without a kubelet: bound pods stay as they are."""

    def __init__(self, server: EmbeddedApiServer) -> None:
        self.server = server
        self.add_class(CLASS)
        self.add_node("node-a")

    def add_node(self, name: str, **spec: Any) -> None:
        labels = {"kubernetes.io/hostname": name}
        node = head("Node", name)
        node["metadata"]["labels"] = labels
        self.server.create("/api/v1/nodes", {**node, "spec": spec})

    def add_class(self, name: str, driver: str = CLASS, **spec: Any) -> None:
        selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
        body = {**head("DeviceClass", name), "spec": {"selectors": [selector], **spec}}
        self.server.create(f"{RESOURCE}/deviceclasses", body)

    def add_slice(self, name: str, *devices: str, node: str = "node-a") -> None:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        listed = [{"name": one} for one in devices]
        spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": listed}
        self.server.create(f"{RESOURCE}/resourceslices", {**head("ResourceSlice", name), "spec": spec})

    def add_claim(self, name: str, *requests: Object, owner: tuple[str, str] | None = None) -> None:
        """A claim; ``owner`` is the name and the UID of the pod that it was made for."""
        body = {**head("ResourceClaim", name), "spec": {"devices": {"requests": [*requests] or [request()]}}}
        if owner is not None:
            pod = {"apiVersion": "v1", "kind": "Pod", "name": owner[0], "uid": owner[1], "controller": True}
            body["metadata"] = {**body["metadata"], "ownerReferences": [pod]}
        self.server.create(CLAIMS, body)

    def add_template(self, name: str, *requests: Object) -> None:
        spec = {"metadata": {"labels": {"from": name}}, "spec": {"devices": {"requests": [*requests]}}}
        body = {**head("ResourceClaimTemplate", name), "spec": spec}
        self.server.create(f"{RESOURCE}/namespaces/default/resourceclaimtemplates", body)

    def add_pod(self, name: str, claim: str = "", template: str = "", **spec: Any) -> None:
        """A pod with a claim, one from a template, or neither."""
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        entries = {"resourceClaims": [{"name": "gpu", **source}]} if claim or template else {}
        containers = [{"name": "main", "image": "none"}]
        body = {**head("Pod", name), "spec": {"containers": containers, **entries, **spec}}
        self.server.create(PODS, body)

    def add_priority(self, name: str, value: int) -> None:
        body = {**head("PriorityClass", name), "apiVersion": "scheduling.k8s.io/v1", "value": value}
        self.server.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)

    def end_pod(self, name: str) -> None:
        """What a kubelet does at the end: the pod's object goes."""
        self.server.delete(f"{PODS}/{name}?gracePeriodSeconds=0")

    def set_phase(self, name: str, phase: str) -> None:
        self.set_status(name, phase=phase)

    def set_status(self, name: str, **fields: Any) -> None:
        """Change these fields of a pod's status, again where a controller has changed the pod meanwhile."""

        def is_set() -> bool:
            pod = self.pod(name)
            try:
                status = {**pod.get("status", {}), **fields}
                self.server.replace(f"{PODS}/{name}/status", {**pod, "status": status})
            except Refused as refused:
                if refused.code != 409:
                    raise
                return False
            return True

        self.wait(is_set)

    def pod(self, name: str) -> Object:
        return next(pod for pod in self.server.objects("pods") if pod["metadata"]["name"] == name)

    def has_pod(self, name: str) -> bool:
        return name in (pod["metadata"]["name"] for pod in self.server.objects("pods"))

    def is_leaving(self, pod: str) -> bool:
        """Whether a pod is being deleted, or is gone already."""
        here = [one["metadata"] for one in self.server.objects("pods") if one["metadata"]["name"] == pod]
        return all("deletionTimestamp" in metadata for metadata in here)

    def node_of(self, pod: str) -> str:
        return str(self.pod(pod)["spec"].get("nodeName", ""))

    def claims(self) -> list[Object]:
        return self.server.objects("resourceclaims", GROUP)

    def claim(self, name: str) -> Object:
        return next(one for one in self.claims() if one["metadata"]["name"] == name)

    def condition(self, pod: str) -> tuple[str, str]:
        """Reason and message of why a pod waits."""
        for one in self.pod(pod).get("status", {}).get("conditions", ()):
            if one["type"] == "PodScheduled" and one["status"] == "False":
                return one["reason"], one["message"]
        return "", ""

    def told(self, reason: str) -> list[str]:
        """The messages of all events with this reason."""
        return [one["message"] for one in self.server.objects("events") if one["reason"] == reason]

    def wait(self, condition: Callable[[], bool]) -> None:
        eventually("the cluster comes to this", condition, context=lambda: self.server.objects("events"))

    def wait_bound(self, pod: str) -> str:
        self.wait(lambda: bool(self.node_of(pod)))
        return self.node_of(pod)

    def wait_refused(self, pod: str) -> str:
        """The message of the pod's condition, once it is refused."""
        self.wait(lambda: bool(self.condition(pod)[0]))
        return self.condition(pod)[1]


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """All loops running."""
    with EmbeddedApiServer() as server:
        found = ControlPlane(server)
        loops = (
            EmbeddedClaimController(server),
            EmbeddedTaintEviction(server),
            EmbeddedDisruptionController(server),
            EmbeddedNamespaceController(server),
            EmbeddedGarbageCollector(server),
            EmbeddedWorkloadController(server),
            EmbeddedScheduler(server),
        )
        for loop in loops:
            loop.start()
        try:
            yield found
        finally:
            for loop in loops:
                loop.stop()


def head(kind: str, name: str) -> Object:
    core = kind in ("Pod", "Node", "Namespace")
    return {"apiVersion": "v1" if core else f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}}


def request(name: str = "gpu", device_class: str = CLASS, **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}
