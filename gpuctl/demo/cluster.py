"""The demo's cluster with the driver on its one node: embedded in this process, or real Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from driver.devices.names import DRIVER_NAME, gpu_device_name
from driver.errors import ConfigError, DriverError
from driver.nvml.mig import Placement
from envtest import cluster as envtest_cluster
from envtest.client import paths
from envtest.client.shipped import PACKAGE_ROOT
from envtest.client.waiting import wait_for, wait_gone, wait_until
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import MPS, DriverNode, DriverProcesses
from gpuctl.demo.journal_files import holding
from gpuctl.demo.metrics_pod import create_metrics_pod, metrics_flags
from gpuctl.demo.objects import NAMESPACE, DemoPod
from gpuctl.demo.watchdog import watched_folder
from kubeletplugin.kubelet.wire.names import cdi_spec_file_name
from kubernetes_rules.pool_generations import is_complete, newest_slices

if TYPE_CHECKING:
    from gpuctl.demo.lent_gpus import LentGpus

Object = dict[str, Any]
Kind = Literal["embedded", "real"]

NODE_CONFIG = "deploy/examples/node-config/all-tiers.yaml"
"""Every GPU whole, in partitions where MIG can make them, and in shares, as pods ask."""


_PACKAGES = ("kubeletplugin", "controller", MPS)


class ProcessEnded(DriverError):
    """A process of the driver ended while it was needed."""

    retryable = False


class DemoCluster:
    """A cluster with one node and the driver on it. Every wait ends with an error after some time.

    Everything is in a temporary folder, which ``close`` removes. If this process is killed, the watchdog
    removes it. ``machine`` is a fake machine, unless GPUs are lent. With ``keep`` kubectl can use it, and the
    plugin serves its metrics to every user of this machine. Methods raise what the cluster raises.
    """

    def __init__(self, kind: Kind, machine: str, lent: LentGpus | None = None, *, keep: bool = False) -> None:
        self.kind = kind
        self.machine = machine
        self.node_name = ""
        self._keep = keep
        self._lent = lent
        self._cleanup = ExitStack()
        self._driver: DriverProcesses | None = None
        self._fake: FakeMachine | None = None

    def start(self, say: Callable[[str], None]) -> None:
        """Start everything and report each step; returns when the GPUs are published."""
        self._driver, config = self._installed(say)
        driver = self._driver
        self.node_name = driver.node.name
        driver.start_plugin(*(metrics_flags(driver.cluster, driver.node) if self._keep else ()))
        driver.start_controller("--config", str(config))
        driver.start_mps()
        say(
            "started the driver: python -m kubeletplugin, python -m controller,\n"
            "python -m kubeletplugin.sharing.mps"
        )
        self._wait(lambda: bool(self.slices()))
        say(f"the kubelet has registered {DRIVER_NAME}, and ResourceSlices are published")

    def close(self) -> None:
        """End all processes and remove all files; also after a failed start, and twice."""
        self._cleanup.close()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the running cluster's administrator."""
        return self._running.cluster.admin

    def open_to_users(self) -> None:
        """Let pods ask by nvidia.com/gpu in limits, and ``gpuctl top`` find metrics; only with ``keep``."""
        running = self._running
        running.cluster.api.apply(PACKAGE_ROOT / "deviceclasses/opt-in/gpu.yaml")
        create_metrics_pod(running.cluster, running.node)

    def logs(self) -> dict[str, str]:
        """The end of the log of each process of the driver, by its name."""
        if self._driver is None:
            return {}
        processes = self._driver.cluster.processes
        ours = tuple(f"{package}-" for package in _PACKAGES)
        return {name: processes.log_tail(name) for name in processes.names() if name.startswith(ours)}

    def slices(self) -> list[Object]:
        """The node's slices of the newest generation; none while a pool is incomplete."""
        found = self._running.cluster.api.list_objects(paths.resource_slice())
        pools = newest_slices(found).values()
        return [one for pool in pools for one in pool] if all(map(is_complete, pools)) else []

    def claims(self) -> list[Object]:
        """All claims of the story."""
        return self._running.cluster.api.list_objects(paths.resource_claim(namespace=NAMESPACE))

    def create(self, *pods: DemoPod) -> None:
        """Create the claims of pods and the pods."""
        for pod in pods:
            self._running.cluster.api.create(pod.claim(), NAMESPACE)
            self._running.cluster.api.create(pod.pod(), NAMESPACE)

    def wait_running(self, pod: DemoPod) -> dict[str, envtest_cluster.ContainerFacts]:
        """Wait until the pod runs; returns what its containers got, by their names."""
        cluster = self._running.cluster
        wait_for(cluster.api, paths.pod(pod.name), _runs)
        return {name: cluster.container(pod.name, NAMESPACE, name) for name in pod.containers}

    def wait_unschedulable(self, pod: DemoPod) -> str:
        """Wait until the scheduler has no place for the pod; returns its message."""
        api = self._running.cluster.api
        return _refusal(wait_for(api, paths.pod(pod.name), lambda stored: bool(_refusal(stored))))

    def end(self, *pods: DemoPod) -> None:
        """Delete pods and their claims, and wait until they are gone and the node has nothing of them."""
        api = self._running.cluster.api
        claims = [paths.resource_claim(pod.claim_name, NAMESPACE) for pod in pods]
        uids = [api.get(claim)["metadata"]["uid"] for claim in claims]
        # The journal's entry is the last to go, after the CDI spec is removed and partitions are destroyed.
        files = {name for uid in uids for name in (cdi_spec_file_name(uid), f"{uid}.json")}
        for pod in pods:
            api.delete(paths.pod(pod.name))
        for pod in pods:
            wait_gone(api, paths.pod(pod.name))
        self._wait(lambda: files.isdisjoint(self.left()))
        for claim in claims:
            api.delete(claim)
            wait_gone(api, claim)

    def left(self) -> tuple[str, ...]:
        """The names of files of claims on the node: CDI specs, and journal entries that hold devices."""
        specs = sorted(path.name for path in self._running.node.cdi_dir.iterdir())
        return (*specs, *holding(self._running.journal_dir))

    def cut(self) -> dict[str, tuple[Placement, ...]]:
        """The GPUs that are in MIG mode now, with the placements of their GPU instances."""
        if self._lent is not None:
            return self._lent.cut()
        return {
            gpu_device_name(pci): tuple(
                sorted((one.placement for one in gpu.mig.instances), key=lambda place: place.start)
            )
            for pci, gpu in sorted(self._machine.state.gpus.items())
            if gpu.mig.enabled or gpu.mig.instances
        }

    @property
    def _machine(self) -> FakeMachine:
        if self._fake is None:
            raise ConfigError("the demo's machine is not started", "call start first")
        return self._fake

    @property
    def _running(self) -> DriverProcesses:
        if self._driver is None:
            raise ConfigError("the demo's cluster is not started", "call start first")
        return self._driver

    def _installed(self, say: Callable[[str], None]) -> tuple[DriverProcesses, Path]:
        """The driver on the node of a new cluster, not started yet, and its node configuration."""
        config = PACKAGE_ROOT / NODE_CONFIG
        if self._lent is not None:
            embedded = self._cleanup.enter_context(self._lent.cluster(self._folder(), https=self._keep))
            say("API server, scheduler, controllers and kubelet run in this process")
            driver = self._lent.driver(embedded)
            hiding = driver.node.folder / "node-config.yaml"
            hiding.write_text(yaml.safe_dump(self._lent.node_config(config)))
            return driver, hiding
        node = DriverNode.install(self._start_cluster(say), machine=self.machine)
        self._fake = node.machine
        # Runs before the cluster ends its processes: MPS daemons are children of the supervisor, and outlive
        # it.
        self._cleanup.callback(node.end_mps)
        return node, config

    def _folder(self) -> Path:
        from envtest.embedded.cluster import FOLDER_PREFIX

        return self._cleanup.enter_context(watched_folder(FOLDER_PREFIX))

    def _start_cluster(self, say: Callable[[str], None]) -> envtest_cluster.Cluster:
        if self.kind == "embedded":
            from envtest.embedded.cluster import EmbeddedCluster

            embedded = self._cleanup.enter_context(EmbeddedCluster(folder=self._folder(), https=self._keep))
            say("API server, scheduler, controllers and kubelet run in this process")
            return embedded
        from envtest.real.startup import start_cluster

        say("starting Kubernetes; where its binaries are not built yet, this takes minutes")
        real = self._cleanup.enter_context(start_cluster())
        say(f"Kubernetes {real.kubernetes} runs: API server, scheduler, kubelet, containerd")
        return real

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; raises ProcessEnded if a process of the driver ends."""

        def look() -> bool | None:
            for package in _PACKAGES:
                code = self._running.process(package).returncode
                if code is not None:
                    raise ProcessEnded(f"python -m {package} ended with status {code}", "see its log")
            return True if condition() else None

        wait_until([], self._running.cluster.processes, look)


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _refusal(pod: Object) -> str:
    """Why the scheduler has no place for the pod; empty if it has not said so."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return str(condition.get("message", "no reason given"))
    return ""
