"""A cluster of nodes with whole GPUs on an API server without a scheduler: the tests play that."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clusters import EmbeddedApiServer, KubeClient, Object

DRA = "/apis/resource.k8s.io/v1"
PODS = "/api/v1/namespaces/team/pods"
CLAIMS = f"{DRA}/namespaces/team/resourceclaims"
DRIVER = "gpu.example.com"


class Scene:
    """The namespace ``team`` and a class for all GPUs; nodes, pods and claims are made one by one."""

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.server = server
        self.client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
        server.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        server.create("/api/v1/namespaces", {"metadata": {"name": "gpu-dra"}})
        server.create(f"{DRA}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})

    def node(self, name: str, gpus: int = 2) -> None:
        """A node with so many GPUs, ``gpu-0`` and so on."""
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        node = {"metadata": {"name": name}, "status": {"allocatable": allocatable, "capacity": allocatable}}
        self.server.create("/api/v1/nodes", node)
        spec = {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(gpus)],
        }
        self.server.create(f"{DRA}/resourceslices", {"metadata": {"name": f"{name}-gpus"}, "spec": spec})

    def runs(self, name: str, priority: int, node: str, *devices: str, **spec: Any) -> Object:
        """A pod on a node that has these GPUs."""
        self.claim(name, count=max(1, len(devices)))
        pod = self._pod(name, priority, nodeName=node, **spec)
        ready = {"type": "Ready", "status": "True"}
        self.status(pod, {"phase": "Running", "startTime": "2026-11-01T00:00:00Z", "conditions": [ready]})
        self.allocate(name, node, *devices, user=pod)
        return self.pod(name)

    def waits(
        self, name: str, priority: int, gpus: int = 1, selectors: Sequence[str] = (), **spec: Any
    ) -> Object:
        """A pod for which the scheduler has found no place."""
        self.claim(name, gpus, selectors)
        pod = self._pod(name, priority, **spec)
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.status(pod, {"phase": "Pending", "conditions": [refused]})
        return self.pod(name)

    def claim(self, name: str, count: int = 1, selectors: Sequence[str] = ()) -> Object:
        """A claim for so many GPUs that CEL expressions select."""
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        exactly["selectors"] = [{"cel": {"expression": one}} for one in selectors]
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        return self.server.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def allocate(self, claim: str, node: str, *devices: str, user: Object) -> None:
        """Give a claim its devices, as the scheduler does, and reserve it for a pod."""
        results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": one} for one in devices]
        stored = self.client.get(f"{CLAIMS}/{claim}")
        users = (stored.get("status") or {}).get("reservedFor") or []
        reference = {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
        before = (stored.get("status") or {}).get("allocation")
        allocation = before or {"devices": {"results": results}}
        self.status(stored, {"allocation": allocation, "reservedFor": [*users, reference]}, CLAIMS)

    def places(self, pod: str, node: str, *devices: str) -> None:
        """Let the scheduler place a pod that waited."""
        stored = self.pod(pod)
        self.allocate(pod, node, *devices, user=stored)
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        self.client.create(f"{PODS}/{pod}/binding", binding)

    def status(self, item: Object, status: Object, collection: str = PODS) -> None:
        """Write the status of an object."""
        path = f"{collection}/{item['metadata']['name']}"
        self.server.replace(f"{path}/status", {**self.client.get(path), "status": status})

    def ends(self, name: str, *, freed: bool = True) -> None:
        """Let a pod end, and free its claim, as the kubelet and the claim controller do."""
        self.client.patch(
            f"{PODS}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json"
        )
        if name in self.names():
            self.server.delete(f"{PODS}/{name}")
        if freed:
            self.status(self.client.get(f"{CLAIMS}/{name}"), {}, CLAIMS)

    def pod(self, name: str) -> Object:
        """A pod as it is stored."""
        return self.client.get(f"{PODS}/{name}")

    def names(self) -> set[str]:
        """The pods that are not ending."""
        pods = self.server.objects("pods")
        return {one["metadata"]["name"] for one in pods if "deletionTimestamp" not in one["metadata"]}

    def _pod(self, name: str, priority: int, **spec: Any) -> Object:
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        name_of_class = f"of-{priority}"
        if name_of_class not in {
            one["metadata"]["name"] for one in self.server.objects("priorityclasses", "scheduling.k8s.io")
        }:
            self.server.create(classes, {"metadata": {"name": name_of_class}, "value": priority})
        container = {"name": "main", "image": "any", "resources": {"claims": [{"name": "gpu"}]}}
        body = {
            # Until the test lets it end, as if a kubelet took its time.
            "metadata": {"name": name, "finalizers": ["example.com/runs"]},
            "spec": {
                "priorityClassName": name_of_class,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                **spec,
            },
        }
        return self.server.create(PODS, body)
