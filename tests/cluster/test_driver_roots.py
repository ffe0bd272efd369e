"""A node's driver container comes late, ends, and comes back with another version, while pods run.

It brings its root by a mount, as the GPU operator's does: the processes see it come and go, and containers
are made with what the host has at that path.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fakegpu.driver_files.elf_library import LIBRARY_FOLDER
from tests.clusters import DriverNode, Object, RealCluster, fresh_namespace, paths, wait_for
from tests.eventually import eventually
from tests.flow.claims import claim_of, gpu_nodes, gpu_pod, make_template, wait_running
from tests.gpus import build_driver_root

ROOT = "/run/nvidia/driver"
OLD, NEW = "580.95.05", "590.44.01"
DRIVER_GONE = "gpu.nvidia.com/driver-not-loaded"


@dataclass(frozen=True, slots=True)
class Host:
    """A node with GPUs whose driver comes by a container; ``seen`` is its root for the driver's processes."""

    driver: DriverNode
    namespace: str

    @property
    def seen(self) -> Path:
        """Where the processes see the root of the host."""
        return self.driver.node.host_path("/")

    @property
    def cluster(self) -> RealCluster:
        """The cluster of the node."""
        assert isinstance(self.driver.cluster, RealCluster)
        return self.driver.cluster

    def start(self) -> None:
        """Start the driver's processes while there is no NVIDIA driver yet."""
        self.driver.machine.driver_gone()
        (self.seen / ROOT[1:]).mkdir(parents=True)
        probed = ("--driver-root", "auto", "--host-root", str(self.seen))
        self.driver.start_plugin(*probed)
        self.driver.start_controller(*probed)
        self.driver.wait_serving()

    def install(self, version: str) -> None:
        """Have a driver container load its modules, and then mount its root, as NVIDIA's does."""
        self.driver.machine.driver_back(version)
        root = self.driver.folder / f"driver-{version}"
        build_driver_root(root, self.driver.machine)
        self._in_cluster("mount", "--bind", str(root), str(self.seen / ROOT[1:]))

    def end_container(self) -> None:
        """Have the driver container unload its modules and unmount its root, lazily, as NVIDIA's does."""
        self.driver.machine.driver_gone()
        self._in_cluster("umount", "-l", str(self.seen / ROOT[1:]))

    def create(self, name: str) -> None:
        """Create a pod that wants a GPU."""
        self.cluster.api.create(gpu_pod(name), self.namespace)

    def wait_running(self, pod: str) -> None:
        """Wait until a pod runs; one that was refused before is tried again within a minute."""
        wait_running(self.cluster, self.namespace, pod, timeout_seconds=120)

    def waits(self, pod: str) -> None:
        """Wait until the scheduler has said that no node has a GPU for the pod."""

        def refused(stored: Object) -> bool:
            conditions = stored["status"].get("conditions", ())
            return any(one.get("reason") == "Unschedulable" for one in conditions)

        wait_for(self.cluster.api, paths.pod(pod, self.namespace), refused, timeout_seconds=60)

    def devices(self) -> dict[str, list[str]]:
        """The published devices, with the keys of their taints."""
        return {
            device["name"]: [taint["key"] for taint in device.get("taints", ())]
            for stored in self.cluster.api.get(paths.resource_slice())["items"]
            for device in stored["spec"].get("devices", ())
        }

    def wait_devices(self, condition: Callable[[dict[str, list[str]]], bool]) -> dict[str, list[str]]:
        """Wait until the published devices are so; returns them."""
        return eventually("the devices are published so", self.devices, condition)

    def library(self, pod: str, version: str) -> str:
        """What a container reads in libcuda of a version, which is there for as long as it is mounted."""
        path = f"/{LIBRARY_FOLDER}/libcuda.so.{version}"
        return self.cluster.exec(
            pod, ["sh", "-c", f"test -s {path} && echo there || echo gone"], self.namespace
        )

    def spec(self, pod: str) -> str:
        """The CDI spec of the pod's claim."""
        uid = claim_of(self.cluster, self.namespace, pod)["metadata"]["uid"]
        (file,) = self.driver.node.cdi_dir.glob(f"*_{uid}.json")
        return file.read_text()

    def _in_cluster(self, *command: str) -> None:
        pid = self.driver.process("kubeletplugin").host_pid
        # umount reads /proc, which in there is that of the cluster's own process ids.
        subprocess.run(["nsenter", f"--target={pid}", "--mount", "--pid", "--", *command], check=True)


@pytest.fixture
def host(start_cluster: Callable[[int], RealCluster], driver_launcher: tuple[str, ...]) -> Iterator[Host]:
    cluster = start_cluster(1)
    with fresh_namespace(cluster.api) as namespace:
        make_template(cluster, namespace)
        yield Host(DriverNode.install(cluster, launcher=driver_launcher), namespace)


def test_pods_live_through_a_driver_that_comes_late_ends_and_comes_back_newer(host: Host) -> None:
    host.start()
    host.create("early")
    host.waits("early")
    assert host.devices() == {}

    host.install(OLD)
    host.wait_running("early")
    assert host.library("early", OLD) == "there\n"
    assert len(gpu_nodes(host.cluster, host.namespace, "early")) == 1
    before = host.spec("early")
    mounts = json.loads(before)["containerEdits"]["mounts"]
    assert all(mount["hostPath"].startswith(f"{ROOT}/") for mount in mounts)
    published = host.devices()
    assert set(map(tuple, published.values())) == {()}

    host.end_container()
    tainted = host.wait_devices(lambda devices: all(DRIVER_GONE in keys for keys in devices.values()))
    assert tainted.keys() == published.keys(), "what stood stays"
    host.create("between")
    host.waits("between")
    assert host.library("early", OLD) == "there\n"
    assert host.spec("early") == before

    host.install(NEW)
    host.wait_devices(lambda devices: devices == published)
    host.wait_running("between")
    assert host.library("between", NEW) == "there\n"
    assert host.library("between", OLD) == "gone\n"
    assert host.library("early", OLD) == "there\n"
    eventually("the spec has the new library", partial(host.spec, "early"), lambda text: f".so.{NEW}" in text)
    assert f".so.{OLD}" not in host.spec("early")
    containers = host.cluster.api.get(paths.pod("early", host.namespace))["status"]["containerStatuses"]
    assert [one["restartCount"] for one in containers] == [0]
