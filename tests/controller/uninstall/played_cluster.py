"""Plays what Kubernetes and the driver do while the driver is taken away: one round at each wait.

The DaemonSet controller gives each node a pod of a DaemonSet or takes it away; controllers publish slices; a
pod that cleans becomes ready, or ends with an error, as the test says of its node.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from controller.uninstall.cluster import PAUSED, Cluster
from controller.uninstall.steps import NAME, Installed, Patience, Uninstallation
from tests.clusters import EmbeddedApiServer, KubeClient, NotFound, Object

NAMESPACE = "gpu-dra"
NODES = ("node-a", "node-b")
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"


class PlayedCluster:
    """``refusing`` has the nodes whose cleaning fails, and why; ``slow`` those that take for ever, and
    ``down`` those whose kubelet is gone.

    ``rounds`` says what else happens, once each, in the rounds to come.
    """

    def __init__(self, server: EmbeddedApiServer, folder: Path) -> None:
        self.client = KubeClient.connect(server.write_kubeconfig(folder / "kubeconfig"))
        self.refusing: dict[str, str] = {}
        self.down: set[str] = set()
        self.slow: set[str] = set()
        self.cleaned: list[str] = []
        self.rounds: list[Any] = []
        self.nodes_seconds = 2.0
        for name in (NAMESPACE, "team"):
            self.client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        for name in NODES:
            self.client.create("/api/v1/nodes", {"metadata": {"name": name}})
            self._node_is(name, "True")
        for name in ("gpu-dra-controller", "gpu-dra-kubeletplugin"):
            self.client.create(SETS, daemon_set(name))
        self.play(0.0)
        assert len(self.slices()) == len(NODES)

    def uninstall(self) -> tuple[str, ...]:
        """Run the uninstallation, with waits in which the cluster plays on."""
        patience = Patience(check_seconds=0.001, pods_seconds=2.0, nodes_seconds=self.nodes_seconds)
        run = Uninstallation(Cluster(self.client, NAMESPACE), Installed(), patience, self.play)
        return run.run()

    def play(self, _seconds: float) -> None:
        """One round."""
        if self.rounds:
            self.rounds.pop(0)()
        for item in self.client.get(SETS)["items"]:
            self._play_daemon_set(item)
        known = {item["metadata"]["name"] for item in self.client.get(SETS)["items"]}
        for pod in self.pods():
            if pod["metadata"]["labels"]["set"] not in known and pod["spec"]["nodeName"] not in self.down:
                self._delete_pod(pod)
        for pod in self.pods("gpu-dra-controller"):
            node = pod["spec"]["nodeName"]
            if f"slice-{node}" not in self.slices():
                self.publish(f"slice-{node}", node)

    def once(self, comes: Callable[[], object], happens: Callable[[], object]) -> None:
        """Let something happen in the first round to come in which ``comes`` is true."""
        self.rounds.append(lambda: happens() if comes() else self.once(comes, happens))

    def go_down(self, node: str) -> None:
        """The node's kubelet is gone."""
        self.down.add(node)
        self._node_is(node, "Unknown")

    def pods(self, name: str = "") -> list[Object]:
        """The pods of a DaemonSet, or of all."""
        items = self.client.get(PODS)["items"]
        return [pod for pod in items if name in ("", pod["metadata"]["labels"]["set"])]

    def slices(self) -> list[str]:
        return sorted(item["metadata"]["name"] for item in self.client.get(SLICES)["items"])

    def sets(self) -> list[str]:
        """The DaemonSets that run on nodes."""
        items = self.client.get(SETS)["items"]
        return sorted(item["metadata"]["name"] for item in items if not _rests(item))

    def allocate(self, claim: str, *pods: str, driver: str = "gpu.nvidia.com") -> None:
        """A scheduler gives a claim a device of node-a, for these pods."""
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        }
        stored = self.client.create(CLAIMS, body)
        result = {"request": "gpu", "driver": driver, "pool": f"node-a/{driver}", "device": "gpu-0"}
        users = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
        stored["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
        self.client.replace(f"{CLAIMS}/{claim}/status", stored)

    def _play_daemon_set(self, item: Object) -> None:
        name = item["metadata"]["name"]
        there = {pod["spec"]["nodeName"]: pod for pod in self.pods(name)}
        for node, pod in there.items():
            if _rests(item) and node not in self.down:
                self._delete_pod(pod)
        for node in NODES:
            if not _rests(item) and node not in there:
                self._start(item, node)
        if name == NAME:
            for pod in self.pods(name):
                self._play_cleaning(pod)
        status = {
            "observedGeneration": item["metadata"]["generation"],
            "desiredNumberScheduled": 0 if _rests(item) else len(NODES),
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        }
        self.client.patch(f"{SETS}/{name}/status", {"status": status}, "application/merge-patch+json")

    def _start(self, item: Object, node: str) -> None:
        name = item["metadata"]["name"]
        labels = {**item["spec"]["template"]["metadata"]["labels"], "set": name}
        spec = {**item["spec"]["template"]["spec"], "nodeName": node, "terminationGracePeriodSeconds": 0}
        self.client.create(PODS, {"metadata": {"name": f"{name}-{node}", "labels": labels}, "spec": spec})

    def _play_cleaning(self, pod: Object) -> None:
        node = pod["spec"]["nodeName"]
        if node in self.down | self.slow:
            return
        if node in self.refusing:
            ended = {"terminated": {"exitCode": 1, "message": f"trying\nError: {self.refusing[node]}\n"}}
            of_container = {
                "name": "kubeletplugin",
                "image": "i",
                "imageID": "",
                "ready": False,
                "restartCount": 1,
                "lastState": ended,
            }
            status: Object = {"phase": "Running", "containerStatuses": [of_container]}
        else:
            nodes = {one["spec"]["nodeName"] for one in self.pods("gpu-dra-kubeletplugin")}
            assert node not in nodes, "the plugin still runs"
            assert pod["spec"]["containers"][0]["args"] == ["--plugins-dir=/plugins", "--retire"]
            self.cleaned.append(node)
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        path = f"{PODS}/{pod['metadata']['name']}/status"
        self.client.patch(path, {"status": status}, "application/merge-patch+json")

    def publish(self, name: str, node: str, driver: str = "gpu.nvidia.com") -> None:
        """A driver publishes a slice."""
        pool = {"name": f"{node}/{driver}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
        self.client.create(SLICES, {"metadata": {"name": name}, "spec": spec})

    def _delete_pod(self, pod: Object) -> None:
        with suppress(NotFound):
            self.client.delete(f"{PODS}/{pod['metadata']['name']}")

    def _node_is(self, name: str, ready: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        self.client.patch(f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")


def daemon_set(name: str) -> Object:
    """A DaemonSet with one container."""
    labels = {"app": name}
    container = {"name": name.removeprefix("gpu-dra-"), "image": "i", "args": ["--plugins-dir=/plugins"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _rests(item: Object) -> bool:
    return PAUSED in (item["spec"]["template"]["spec"].get("nodeSelector") or {})
