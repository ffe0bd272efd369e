"""The demo's cluster from real Kubernetes binaries: pods that run, in containers that are looked into."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from driver.names import DRIVER_NAME, cdi_spec_file_name
from envtest.real import paths
from envtest.real.cluster import RealCluster
from envtest.real.driver_node import DriverNode
from envtest.real.readiness import wait_until
from envtest.real.startup import start_cluster
from envtest.real.watching import wait_for, wait_for_list, wait_gone
from gpuctl.demo_objects import NAMESPACE, DemoPod
from gpuctl.demo_story import ContainerFacts
from gpuctl.journal_files import holding

Object = dict[str, Any]

_LOOK = ["sh", "-c", "find /dev -type c; env; cat /proc/self/mountinfo"]


class RealDemo:
    """See DemoCluster; raises the errors of envtest.real."""

    kind = "real"

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.node_name = "node-0"
        self._cleanup = ExitStack()
        self._tails: Callable[[], dict[str, str]] = dict

    def start(self, say: Callable[[str], None]) -> None:
        """Start Kubernetes, then the driver on its node with the rights of its service accounts."""
        say("starting Kubernetes; where its binaries are not built yet, this takes minutes")
        self._cluster: RealCluster = self._cleanup.enter_context(start_cluster())
        self._tails = self._tails_of_driver
        say(f"Kubernetes {self._cluster.kubernetes} runs: API server, scheduler, kubelet, containerd")
        self._driver = DriverNode.install(self._cluster, machine=self.machine)
        self._driver.start_plugin()
        self._driver.start_controller()
        say("started the driver: python -m kubeletplugin, python -m controller")
        self._driver.wait_serving()
        say(f"the kubelet has registered {DRIVER_NAME}")
        wait_for_list(self._cluster.api, paths.resource_slice(), _complete)

    def close(self) -> None:
        """End the cluster with all its processes, and remove its folder."""
        self._cleanup.close()

    def logs(self) -> dict[str, str]:
        """The ends of the driver's logs."""
        return self._tails()

    def slices(self) -> list[Object]:
        """The slices of the node."""
        return self._cluster.api.list_objects(paths.resource_slice())

    def claims(self) -> list[Object]:
        """The claims of the story."""
        return self._cluster.api.list_objects(paths.resource_claim(namespace=NAMESPACE))

    def create(self, pod: DemoPod) -> None:
        """Create claim and pod."""
        self._cluster.api.create(pod.claim(), NAMESPACE)
        self._cluster.api.create(pod.pod(), NAMESPACE)

    def wait_running(self, pod: DemoPod) -> tuple[ContainerFacts, ...]:
        """Wait until all containers run, and look into them."""
        wait_for(self._cluster.api, paths.pod(pod.name), _runs)
        return tuple(self._look(pod.name, container) for container in pod.containers)

    def wait_unschedulable(self, pod: DemoPod) -> str:
        """Wait for the scheduler's verdict."""
        waiting = wait_for(self._cluster.api, paths.pod(pod.name), lambda stored: bool(_refusal(stored)))
        return _refusal(waiting)

    def end(self, pod: DemoPod) -> None:
        """Delete the pod and its claim; the kubelet ends containers and unprepares on its own time."""
        api, claim_path = self._cluster.api, paths.resource_claim(pod.claim_name, NAMESPACE)
        spec = self._driver.node.cdi_dir / cdi_spec_file_name(api.get(claim_path)["metadata"]["uid"])
        api.delete(paths.pod(pod.name))
        wait_gone(api, paths.pod(pod.name))
        wait_until([], self._cluster.processes, lambda: None if spec.exists() else True)
        api.delete(claim_path)
        wait_gone(api, claim_path)

    def left(self) -> tuple[str, ...]:
        """The files of claims in the CDI folder and the journal."""
        specs = sorted(path.name for path in self._driver.node.cdi_dir.iterdir())
        return (*specs, *holding(self._driver.journal_dir))

    def _tails_of_driver(self) -> dict[str, str]:
        processes = self._cluster.processes
        ours = [name for name in processes.names() if name.startswith(("kubeletplugin-", "controller-node-"))]
        return {name: processes.log_tail(name) for name in ours}

    def _look(self, pod: str, container: str) -> ContainerFacts:
        """What is found inside of a running container."""
        lines = self._cluster.exec(pod, _LOOK, NAMESPACE, container).splitlines()
        nodes = sorted(line for line in lines if line.startswith(("/dev/nvidia", "/dev/dri/")))
        variables = [line.partition("=") for line in lines if line.startswith("NVIDIA_")]
        # The fourth field of mountinfo is where the mount comes from: files below the driver root.
        sources = [line.split()[3] for line in lines if line[:1].isdigit()]
        mounts = sum(f"/{self._driver.folder.name}/driver/" in source for source in sources)
        env = {name: value for name, _, value in variables}
        return ContainerFacts(container, tuple(nodes), env, mounts)


def _complete(slices: list[Object]) -> bool:
    counts = {int(one["spec"]["pool"]["resourceSliceCount"]) for one in slices}
    return counts == {len(slices)}


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _refusal(pod: Object) -> str:
    """Why the scheduler has no place for the pod; empty while it has not said so."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition.get("message", "no reason given"))
    return ""
