"""A node whose driver changes its version while pods run: each form of GPU, and pods with each of them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clusters import Cluster, DriverNode, Object, Process, boot_folder, paths, service_socket_name
from tests.eventually import eventually
from tests.flow.claims import journal_states, request, spec_files, wait_released, wait_running
from tests.flow.mig_scene import admin_cuts, end, offered, pod_of, template, wait_offered
from tests.flow.share_scene import ask_mps, claim_of_pod, daemon_pid, is_settled
from tests.gpus import CudaProcess, Placement, gpu_device_name

RULES = """version: v1
rules:
  - {when: gpu.index == 1, mig: static}
  - {when: gpu.index == 2, mig: {dynamic: {profiles: [1g]}}}
  - {when: gpu.index == 3, mig: {layout: [3g, 3g]}}
  - {when: gpu.index == 4, shared: {strategy: TimeSlicing, shares: 4}}
  - {when: gpu.index == 5, shared: {strategy: MPS, shares: 4}}
  - {when: gpu.index == 6, shared: {strategy: MPS, memory: {step: 4Gi}, fractional: true}}
  - offer: whole
"""
STATIC_GPU, MPS_GPU = 1, 5
_HALF = 9  # the profile 3g.40gb
_CLIENT = 4_200_001  # a process id above what the kernel gives


@dataclass(frozen=True, slots=True)
class Form:
    """A form of GPU that pods ask for: its class, and on which GPUs, by their places on the bus."""

    gpus: tuple[int, ...]
    device_class: str
    memory: str = ""


FORMS = {
    "whole": Form((0, 7), "gpu.nvidia.com"),
    "static": Form((STATIC_GPU,), "mig.nvidia.com"),
    "dynamic": Form((2,), "mig.nvidia.com"),
    "layout": Form((3,), "mig.nvidia.com"),
    "time-sliced": Form((4,), "shared-timesliced"),
    "mps": Form((MPS_GPU,), "shared-mps"),
    "fractional": Form((6,), "gpu.nvidia.com", "20Gi"),
}
"""By their names; there is room for two pods of each."""


class Upgraded:
    """A node and its pods, whose driver is of the version that ``driver`` has now."""

    def __init__(self, driver: DriverNode, namespace: str) -> None:
        """Have the driver run and offer every form; nothing was started on the node before."""
        self.driver = driver
        self.namespace = namespace
        self._suffix = ""
        self._clients: list[CudaProcess] = []
        for start in (4, 0):
            admin_cuts(driver, STATIC_GPU, _HALF, Placement(start, 4))
        self.before = self.gpus()
        self._rules = driver.folder / "rules.yaml"
        self._rules.write_text(RULES)
        for name, form in FORMS.items():
            template(self.cluster, namespace, name, _asked(driver, form))
        driver.start_mps()
        driver.start_plugin()
        driver.wait_serving()
        driver.start_controller("--config", str(self._rules))
        self.offered = by_name(wait_offered(driver, is_settled))

    @property
    def cluster(self) -> Cluster:
        """The cluster of the node."""
        return self.driver.cluster

    def hand_over(self, pod_uid: str = "") -> None:
        """Have another instance take over: its plugin serves before the other ends, and it offers the same.

        ``pod_uid`` is that of the new plugin's pod; of two that run at once one needs it.
        """
        before = self._process("kubeletplugin", self._suffix)
        driver, self._suffix = self.driver, "-second" if pod_uid else ""
        driver.start_plugin(*(("--pod-uid", pod_uid) if pod_uid else ()), suffix=self._suffix)
        driver.wait_serving(driver.data_dir / service_socket_name(pod_uid))
        assert before.stop() == 0
        assert self._process("controller").stop() == 0
        heard = self._heard()
        driver.start_controller("--config", str(self._rules))
        eventually("the controller hears the plugin", self._heard, lambda times: times > heard)
        # The MPS supervisor stays: its DaemonSet is updated on delete.
        wait_offered(driver, lambda devices: says_as_much(by_name(devices), self.offered))

    def start(self, prefix: str, forms: Iterable[str] = FORMS) -> list[str]:
        """Start a pod of each form and wait until all run; their names are ``<prefix>-<form>``."""
        pods = {f"{prefix}-{form}": form for form in forms}
        for pod, form in pods.items():
            self.cluster.api.create(pod_of(pod, form), self.namespace)
        for pod in pods:
            wait_running(self.cluster, self.namespace, pod, timeout_seconds=120)
        return list(pods)

    def end(self, pods: Sequence[str]) -> None:
        """Delete pods and wait until the node has let go of their claims."""
        uids = [self.claim(pod) for pod in pods]
        end(self.cluster, self.namespace, *pods)
        for uid in uids:
            wait_released(self.driver, uid)

    def claim(self, pod: str) -> str:
        """The UID of a pod's claim."""
        return str(claim_of_pod(self.cluster, self.namespace, pod)["metadata"]["uid"])

    def containers(self, pods: Iterable[str]) -> dict[str, tuple[str, str, int]]:
        """Of each pod its phase, its container's id, and how often that was started again."""
        return {pod: self._container(pod) for pod in pods}

    def specs(self, pods: Iterable[str]) -> dict[str, bytes]:
        """The CDI specs of pods' claims."""
        files = {pod: list(self.driver.node.cdi_dir.glob(f"*_{self.claim(pod)}.json")) for pod in pods}
        return {pod: file.read_bytes() for pod, (file,) in files.items()}

    def gpus(self) -> dict[str, tuple[str, int, bool, tuple[tuple[int, int, int], ...]]]:
        """Of each GPU compute mode, time-slice and MIG mode; of its instances id, profile and place."""
        return {
            str(pci): (
                gpu.compute_mode,
                gpu.time_slice,
                gpu.mig.enabled,
                tuple((one.id, one.profile_id, one.placement.start) for one in gpu.mig.instances),
            )
            for pci, gpu in self.driver.machine.state.gpus.items()
        }

    def daemons(self) -> dict[str, int]:
        """The process ids of the MPS daemons, by their names."""
        return {pipes.parent.name: daemon_pid(pipes) for pipes in self.driver.mps_dir.glob("*/pipe")}

    def connect_client(self) -> None:
        """Let a CUDA process run on the GPU that is shared by MPS."""
        self._clients.append(CudaProcess(self._pipes(), process_id=_CLIENT, user_id=os.getuid()))

    def client_is_connected(self) -> bool:
        """Whether MPS still counts that process."""
        (server,) = ask_mps(self.driver, self._pipes(), "get_server_list")
        return ask_mps(self.driver, self._pipes(), f"get_client_list {server}") == [str(_CLIENT)]

    def wait_put_back(self) -> None:
        """Wait until the node is as it was before the first pod."""

        def left() -> object:
            sharing = list((boot_folder(self.driver.data_dir) / "sharing").glob("*.json"))
            return self.daemons(), sharing, spec_files(self.driver)

        eventually("daemons, records and specs are gone", left, lambda found: found == ({}, [], set()))
        eventually("the GPUs are as before", self.gpus, lambda gpus: gpus == self.before)
        eventually(
            "so are the offers", lambda: by_name(offered(self.driver)), lambda one: one == self.offered
        )
        assert set(journal_states(self.driver).values()) <= {"released"}

    def close(self) -> None:
        """End what the node does not end by itself."""
        for client in self._clients:
            client.close()
        self.driver.end_mps()

    def _pipes(self) -> Path:
        (pipes,) = self.driver.mps_dir.glob(f"{gpu_device_name(self.driver.machine.pci(MPS_GPU))}/pipe")
        return pipes

    def _process(self, package: str, suffix: str = "") -> Process:
        return self.cluster.processes.named(f"{package}-{self.driver.node.name}{suffix}")

    def _heard(self) -> int:
        """How often controllers have heard from a plugin what it holds."""
        return self._process("controller").log.count("state of the node")

    def _container(self, pod: str) -> tuple[str, str, int]:
        status = self.cluster.api.get(paths.pod(pod, self.namespace))["status"]
        (container,) = status["containerStatuses"]
        return status["phase"], container["containerID"], container["restartCount"]


def by_name(devices: list[Object]) -> dict[str, Object]:
    """Published devices by their names."""
    return {device["name"]: device for device in devices}


def says_as_much(devices: dict[str, Object], before: dict[str, Object]) -> bool:
    """Whether these are the same devices, of which a newer version may tell more than the older one did."""

    def same(now: Object, then: Object) -> bool:
        told = ("attributes", "capacity")
        rest = [{key: value for key, value in one.items() if key not in told} for one in (now, then)]
        kept = all((now.get(key) or {}).items() >= (then.get(key) or {}).items() for key in told)
        return kept and rest[0] == rest[1]

    return devices.keys() == before.keys() and all(same(devices[name], before[name]) for name in before)


def _asked(driver: DriverNode, form: Form) -> Object:
    """A request for a device of the form on its own GPUs."""
    gpus = [str(driver.machine.pci(gpu)) for gpu in form.gpus]
    bus = f"device.attributes['resource.kubernetes.io'].pciBusID in {gpus}"
    asked = request(device_class=form.device_class, selectors=[{"cel": {"expression": bus}}])
    if form.memory:
        asked["exactly"]["capacity"] = {"requests": {"memory": form.memory}}
    return asked
