"""A node of the embedded kubelet's tests, with a plugin, and pods that a scheduler has bound to it."""

import json
from collections.abc import Callable
from pathlib import Path

from envtest.client.layout import NodeLayout
from envtest.embedded.node.container_runtime import ContainerRuntime
from envtest.embedded.node.kubelet import EmbeddedKubelet, KubeletTimes
from tests.clusters import EmbeddedApiServer, GpuPrograms, Object
from tests.eventually import eventually
from tests.kubeletplugin.fake_kubelet import Plugin
from tests.plugin import PreparedDevice

DRIVER = "gpu.nvidia.com"
KIND = "k8s.gpu.nvidia.com/claim"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/namespaces/default/pods"
TIMES = KubeletTimes(
    scan=0.05,
    prepare_retry=(0.05, 0.1),
    unprepare_retry=0.05,
    create_retry=0.05,
    restart_back_off=(0.05, 0.2),
)


class Node:
    """A kubelet on a node with a plugin, and pods that a scheduler has bound to it."""

    def __init__(self, server: EmbeddedApiServer, plugin: Plugin, times: KubeletTimes = TIMES) -> None:
        self.server = server
        self.plugin = plugin
        self.times = times
        self.layout = NodeLayout("node-a", plugin.folder / "n")
        self.layout.kubelet_dir.mkdir(parents=True)
        self.layout.cdi_dir.mkdir()
        self.layout.registry_dir.symlink_to(plugin.folder / "registry")
        self.runtime = ContainerRuntime(self.layout.cdi_dir, self.layout.cgroup_dir)
        self.runtime.programs = GpuPrograms()
        self.kubelet = EmbeddedKubelet(server, self.layout, self.runtime, times)
        edits = [{"name": name, "containerEdits": {"env": [f"{name}=1"]}} for name in ("a", "b")]
        self.spec = {"cdiVersion": "0.5.0", "kind": KIND, "devices": edits}
        self.spec_file.write_text(json.dumps(self.spec))
        plugin.claims.devices = (
            PreparedDevice(("first",), "node/gpu", "gpu-0", (f"{KIND}=a",)),
            PreparedDevice(("second",), "node/gpu", "gpu-1", (f"{KIND}=b",)),
        )

    @property
    def spec_file(self) -> Path:
        return self.layout.cdi_dir / "claims.json"

    def start(self) -> None:
        self.kubelet.start()
        self.wait(lambda: self.kubelet.plugins.drivers == (DRIVER,))

    def restart(self) -> None:
        self.kubelet.stop()
        self.kubelet = EmbeddedKubelet(self.server, self.layout, self.runtime, self.times)
        self.start()

    def wait(self, condition: Callable[[], bool]) -> None:
        eventually("the node comes to this", condition, context=lambda: self.server.objects("pods"))

    def bind(self, pod: str, claim: str, *containers: Object, initial: tuple[Object, ...] = ()) -> None:
        """A pod with a claim that is allocated and reserved for it."""
        spec = {
            "containers": list(containers or (main(),)),
            "resourceClaims": [{"name": "gpus", "resourceClaimName": claim}],
            **({"initContainers": list(initial)} if initial else {}),
        }
        stored = self.server.create(PODS, {**head("Pod", pod), "spec": spec})
        if not any(one["metadata"]["name"] == claim for one in self.claims()):
            self.server.create(CLAIMS, claim_object(claim))
        found = next(one for one in self.claims() if one["metadata"]["name"] == claim)
        user = {"resource": "pods", "name": pod, "uid": stored["metadata"]["uid"]}
        users = [*found.get("status", {}).get("reservedFor", ()), user]
        result = {"request": "first", "driver": DRIVER, "pool": "node/gpu", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
        self.server.replace(f"{CLAIMS}/{claim}/status", {**found, "status": status})
        self.server.create(
            f"{PODS}/{pod}/binding", {"metadata": {"name": pod}, "target": {"kind": "Node", "name": "node-a"}}
        )

    def delete(self, pod: str) -> None:
        self.server.delete(f"{PODS}/{pod}")

    def claims(self) -> list[Object]:
        return self.server.objects("resourceclaims", "resource.k8s.io")

    def pod(self, name: str) -> Object | None:
        found = (pod for pod in self.server.objects("pods") if pod["metadata"]["name"] == name)
        return next(found, None)

    def phase(self, name: str) -> str:
        return str((self.pod(name) or {}).get("status", {}).get("phase", ""))

    def wait_running(self, name: str) -> dict[str, dict[str, str]]:
        """The environment of each container of a pod, once it runs."""
        self.wait(lambda: self.phase(name) == "Running")
        pod = self.pod(name)
        running = self.runtime.find(pod["metadata"]["uid"]) if pod is not None else None
        assert running is not None
        return {name: dict(one.last.view.env) for name, one in running.runs.items() if one.last.end is None}

    def told(self, reason: str, words: str) -> bool:
        """Whether an event says so."""
        events = self.server.objects("events")
        return any(event["reason"] == reason and words in event["message"] for event in events)


def head(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def claim_object(name: str) -> Object:
    request = {"name": "first", "exactly": {"deviceClassName": DRIVER}}
    spec = {"devices": {"requests": [request]}}
    return {**head("ResourceClaim", name), "apiVersion": "resource.k8s.io/v1", "spec": spec}


def main(name: str = "main", **used: str) -> Object:
    return {"name": name, "image": "none", "resources": {"claims": [{"name": "gpus", **used}]}}


def bare(name: str) -> Object:
    return {"name": name, "image": "none"}
