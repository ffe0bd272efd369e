"""The demo's cluster in one process, with the driver's real processes beside it; needs no root and no GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError, DriverError
from driver.kube.paths import NODES, claim_path
from driver.names import DRIVER_NAME, checked_socket_path, pool_name, registration_socket
from driver.nvml.driver_root import build_driver_root, build_sysfs
from driver.nvml.fake_machine import FakeMachine
from envtest.embedded.cdi import ContainerView
from envtest.embedded.kubelet import EmbeddedKubelet
from envtest.embedded.scheduler import GROUP, EmbeddedScheduler, complete_pools
from envtest.embedded.server import EmbeddedApiServer
from gpuctl.demo_objects import NAMESPACE, DemoPod
from gpuctl.demo_processes import PROJECT, DriverProcesses
from gpuctl.demo_story import ContainerFacts
from gpuctl.journal_files import holding

Object = dict[str, Any]

READY_SECONDS = 60.0
DEVICE_CLASS = PROJECT / "deviceclasses" / "gpu.yaml"


class NotReady(DriverError):
    """Something of the demo's cluster did not come up in time."""


class EmbeddedDemo:
    """See DemoCluster. Everything is in a temporary folder, which ``close`` removes."""

    kind = "embedded"
    node_name = "demo-node"

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self._cleanup = ExitStack()
        self._tails: Callable[[], dict[str, str]] = dict

    def start(self, say: Callable[[str], None]) -> None:
        """Start the API server, the driver's processes and the kubelet; wait for the slices."""
        self._make_folders()
        self._server = self._cleanup.enter_context(EmbeddedApiServer())
        self._server.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node_name}})
        self._server.create("/apis/resource.k8s.io/v1/deviceclasses", device_class())
        self._scheduler = EmbeddedScheduler(self._server, self.node_name)
        say("API server and scheduler run in this process")
        self._start_processes()
        say("started the driver: python -m kubeletplugin, python -m controller")
        self._kubelet = EmbeddedKubelet(self._server, self.node_name, self._registry_dir, self._cdi_dir)
        self._cleanup.callback(self._kubelet.close)
        self._wait("the kubelet plugin", self._registered)
        say(f"the kubelet has registered {', '.join(self._kubelet.drivers)}")
        self._wait("the ResourceSlices", self._published)
        self._wait("the health of the GPUs", self._healthy)
        say("ResourceSlices are published, and the plugin reports all GPUs healthy")

    def close(self) -> None:
        """End the processes and the API server, and remove the folder."""
        self._cleanup.close()

    def logs(self) -> dict[str, str]:
        """The end of each process's log."""
        return self._tails()

    def slices(self) -> list[Object]:
        """The slices of the node's pool."""
        pools = complete_pools(self._server.objects("resourceslices", GROUP))
        return [dict(one) for one in pools.get((DRIVER_NAME, pool_name(self.node_name)), ())]

    def claims(self) -> list[Object]:
        """All claims."""
        return self._server.objects("resourceclaims", GROUP)

    def create(self, pod: DemoPod) -> None:
        """Create claim and pod."""
        self._server.create(f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/resourceclaims", pod.claim())
        self._server.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod.pod())

    def wait_running(self, pod: DemoPod) -> tuple[ContainerFacts, ...]:
        """Let the scheduler and then the kubelet look at the pod."""
        reason = self._scheduler.schedule(NAMESPACE, pod.name)
        if reason is not None:
            raise NotReady(f"the pod {pod.name} was not scheduled: {reason}", "end another pod")
        views = self._kubelet.start_pod(NAMESPACE, pod.name)
        return tuple(_facts(name, view) for name, view in views.items())

    def wait_unschedulable(self, pod: DemoPod) -> str:
        """Let the scheduler look at the pod, which it must find no place for."""
        reason = self._scheduler.schedule(NAMESPACE, pod.name)
        if reason is None:
            raise NotReady(f"the pod {pod.name} was scheduled", "end it")
        return reason

    def end(self, pod: DemoPod) -> None:
        """Let the kubelet end the pod, and remove its claim."""
        self._kubelet.end_pod(NAMESPACE, pod.name)
        self._scheduler.release_unused()
        self._server.delete(claim_path(NAMESPACE, pod.claim_name))

    def left(self) -> tuple[str, ...]:
        """The files of claims in the CDI folder and the journal."""
        specs = [path.name for path in self._cdi_dir.iterdir()]
        return (*sorted(specs), *holding(self._data_dir / "journal"))

    def _make_folders(self) -> None:
        """The folders of a node, with a machine in it."""
        name = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gpu-demo-"))
        self._folder = Path(name)
        self._plugins_dir, self._registry_dir = self._folder / "plugins", self._folder / "registry"
        self._cdi_dir, self._logs = self._folder / "cdi", self._folder / "logs"
        self._data_dir = self._plugins_dir / DRIVER_NAME
        registration_socket(self._registry_dir, DRIVER_NAME)
        checked_socket_path(self._data_dir / "dra.sock")
        for folder in (self._plugins_dir, self._registry_dir, self._cdi_dir, self._logs):
            folder.mkdir()
        self._nvml = f"{self.machine}@{self._folder / 'state.json'}"
        fake = FakeMachine.open(self._nvml)
        build_driver_root(self._folder / "driver", fake)
        build_sysfs(self._folder, fake)

    def _start_processes(self) -> None:
        kubeconfig = self._server.write_kubeconfig(self._folder / "kubeconfig")
        both = (
            f"--node-name={self.node_name}",
            f"--kubeconfig={kubeconfig}",
            f"--nvml=fake:{self._nvml}",
            f"--driver-root={self._folder / 'driver'}",
            f"--sysfs-root={self._folder / 'sys'}",
        )
        folders = (f"--plugins-dir={self._plugins_dir}", f"--registry-dir={self._registry_dir}")
        self._processes = DriverProcesses(self._logs)
        self._tails = self._processes.tails
        self._cleanup.callback(self._processes.stop)
        self._processes.start("kubeletplugin", (*both, *folders, f"--cdi-dir={self._cdi_dir}"))
        self._processes.start("controller", (*both, f"--plugin-data-dir={self._data_dir}"))

    def _registered(self) -> bool:
        self._kubelet.register_plugins()
        return DRIVER_NAME in self._kubelet.drivers

    def _published(self) -> bool:
        return bool(self.slices())

    def _healthy(self) -> bool:
        """Whether the plugin's stream has told of each published device that it is healthy."""
        names = {one["name"] for each in self.slices() for one in each["spec"].get("devices", ())}
        told = self._kubelet.health
        return all(told.get((pool_name(self.node_name), name)) == "HEALTHY" for name in names)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until it holds, as long as all processes run."""

        def look() -> bool:
            self._processes.check()
            return condition()

        if not self._server.wait_until(look, READY_SECONDS):
            raise NotReady(f"{what} did not come within {READY_SECONDS:g} s", "look at the logs")


def device_class() -> Object:
    """The DeviceClass of whole GPUs, as the project ships it. Raises ConfigError."""
    try:
        text = DEVICE_CLASS.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the device class {DEVICE_CLASS} cannot be read: {error.strerror}",
            "run gpuctl from a checkout of the project",
        ) from error
    loaded: Object = yaml.safe_load(text)
    return loaded


def _facts(name: str, view: ContainerView) -> ContainerFacts:
    return ContainerFacts(name, tuple(sorted(view.nodes)), dict(view.env), len(view.mounts))
