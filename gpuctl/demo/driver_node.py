"""Runs the driver's processes on a node of a cluster of either kind, over this node's GPUs or a fake machine.

A fake machine has the NVIDIA driver's files and device nodes as fakes that containers can really be started
with.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from driver.devices.names import DRIVER_NAME
from driver.process.boot import boot_folder
from driver.process.sockets import service_socket_name
from envtest.client.layout import NodeLayout
from envtest.client.shipped import PACKAGE_ROOT, python_command, python_environment
from envtest.client.waiting import wait_until
from envtest.cluster import Cluster, Process
from fakegpu.cuda.compiled import compiled_libcuda
from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import shipped_file
from fakegpu.memory.calls import knows_limits
from fakegpu.mps.client import PRIVILEGED, Connection, DaemonGone
from gpuctl.demo.played_programs import GpuPrograms
from proto import grpc_health_v1_pb2 as health

DRIVER_NAMESPACE = "gpu-dra"
RIGHTS = ("deploy/rbac.yaml", "deploy/admission-policy.yaml")
CLASSES = ("deviceclasses/gpu.yaml", "deviceclasses/mig.yaml", "deviceclasses/tiers.yaml")
MPS = "kubeletplugin.sharing.mps"
_OPTIONS = "GPU_DRA_"
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverProcesses:
    """The driver's processes on a node of a cluster: plugin, controller and MPS supervisor.

    ``nvml``, ``driver_root``, ``host_root`` and ``sysfs_root`` are the values of their flags: where the GPUs
    and the NVIDIA driver are. ``proc_root`` shows the processes of the node with these GPUs. Everything that
    the processes write is below the folder of the node. ``own_shm`` is whether each MPS daemon gets a
    /dev/shm of its own, which the supervisor mounts. ``launcher`` is a module with its first arguments that
    starts the package which is named next; without it, the package is started directly. ``packages`` is the
    folder of the packages that run, this checkout's or a former version's. ``memory_hook`` is the program
    that the plugin copies for the container runtime, None for the image's.
    """

    cluster: Cluster
    node: NodeLayout
    nvml: str
    driver_root: str
    sysfs_root: Path
    proc_root: Path
    own_shm: bool
    host_root: Path = Path("/")
    launcher: tuple[str, ...] = ()
    packages: Path = PACKAGE_ROOT
    memory_hook: Path | None = None

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder."""
        return self.node.plugins_dir / DRIVER_NAME

    @property
    def journal_dir(self) -> Path:
        """Where the plugin keeps an entry for each claim."""
        return boot_folder(self.data_dir) / "journal"

    @property
    def plugin_socket(self) -> Path:
        """Where the kubelet calls the plugin."""
        return self.data_dir / service_socket_name()

    @property
    def mps_dir(self) -> Path:
        """The folder of the MPS supervisor and its daemons."""
        # Short: the path of a Unix socket has at most 107 characters.
        return self.node.folder / "mps"

    def wait_serving(self, plugin_socket: Path | None = None) -> None:
        """Wait until the plugin serves and the kubelet has registered it."""
        # The kubelet cannot prepare claims before, and tries a pod that failed again only after a minute or
        # so.
        name = self.process("kubeletplugin").name
        with grpc.insecure_channel(f"unix:{plugin_socket or self.plugin_socket}") as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health.HealthCheckRequest.SerializeToString,
                response_deserializer=health.HealthCheckResponse.FromString,
            )

            # The plugin reports itself as serving when the kubelet has registered it.
            def serves() -> bool | None:
                try:
                    answer: health.HealthCheckResponse = check(
                        health.HealthCheckRequest(), timeout=5, wait_for_ready=True
                    )
                except grpc.RpcError:
                    return None
                return True if answer.status == health.HealthCheckResponse.SERVING else None

            wait_until([name] if plugin_socket is None else [], self.cluster.processes, serves)

    def process(self, package: str) -> Process:
        """The running process of ``kubeletplugin``, ``controller`` or the MPS supervisor."""
        return self.cluster.processes.named(f"{package}-{self.node.name}")

    def start_plugin(self, *flags: str, suffix: str = "") -> Process:
        """Start the kubelet plugin; a second start follows the end of the first."""
        folders = (
            *("--plugins-dir", str(self.node.plugins_dir), "--registry-dir", str(self.node.registry_dir)),
            *("--cdi-dir", str(self.node.cdi_dir), "--mps-dir", str(self.mps_dir)),
        )
        hook = () if self.memory_hook is None else ("--memory-hook", str(self.memory_hook))
        account = "gpu-dra-kubeletplugin"
        return self._start("kubeletplugin", account, *folders, *hook, *flags, suffix=suffix)

    def start_second_plugin(self, pod_uid: str) -> Process:
        """Start another instance of the plugin beside the first, as a rolling update does."""
        return self.start_plugin("--pod-uid", pod_uid, suffix="-second")

    def start_controller(self, *flags: str) -> Process:
        """Start the controller; a second start follows the end of the first."""
        return self._start(
            "controller", "gpu-dra-controller", "--plugin-data-dir", str(self.data_dir), *flags
        )

    def start_mps(self, *more: str) -> Process:
        """Start the MPS supervisor and wait until it answers; a second start follows the end of the first."""
        # The supervisor has /proc of the GPUs' node for its flag. Mounts take rights that the user may not
        # have.
        flags = ("--mps-dir", str(self.mps_dir), "--proc-root", str(self.proc_root), *self._places())
        shm = () if self.own_shm else ("--no-mounts",)
        process = self._launch(MPS, "", *flags, *shm, *more)
        supervisor = str(self.mps_dir / "supervisor.sock")

        def answers() -> bool | None:
            with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
                probe.connect(supervisor)
                return True
            return None

        wait_until([process.name], self.cluster.processes, answers)
        return process

    def _start(self, package: str, account: str, *flags: str, suffix: str = "") -> Process:
        name = self.node.name
        common = (
            *("--node-name", name),
            *("--kubeconfig", str(self.cluster.service_account_kubeconfig(DRIVER_NAMESPACE, account, name))),
            *("--nvml", self.nvml),
            *self._places(),
        )
        return self._launch(package, suffix, *common, *flags)

    def _places(self) -> tuple[str, ...]:
        """The flags that say where the NVIDIA driver is, and what the kernel shows."""
        host = () if self.host_root == Path("/") else ("--host-root", str(self.host_root))
        return ("--driver-root", self.driver_root, *host, "--sysfs-root", str(self.sysfs_root))

    def _launch(self, package: str, suffix: str, *flags: str) -> Process:
        command = python_command("-m", *self.launcher, package, *flags)
        name = f"{package}-{self.node.name}{suffix}"
        # Variables of this process that set options are not meant for it; an empty one sets none.
        unset = {name: "" for name in os.environ if name.startswith(_OPTIONS)}
        return self.cluster.processes.start(name, command, unset | python_environment(self.packages))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverNode(DriverProcesses):
    """A node with a fake machine; ``machine`` changes the hardware while the driver runs.

    ``nvml`` opens the same machine. ``folder`` has the machine's state, its driver root and its sysfs.
    """

    machine: FakeMachine
    folder: Path

    @classmethod
    def install(
        cls,
        cluster: Cluster,
        index: int = 0,
        machine: str = "hgx-h100",
        launcher: tuple[str, ...] = (),
        packages: Path = PACKAGE_ROOT,
        memory_hook: Path | None = None,
    ) -> DriverNode:
        """Put a machine into a node, and the driver's rights, policy and classes into the cluster.

        Nothing is started yet. ``machine`` is a shipped machine or the path of a machine file. The rights,
        the policy and the classes are those of the version in ``packages``; the fake machine is this
        version's.
        """
        apply_manifests(cluster, packages)
        node = cluster.nodes[index]
        folder = node.folder / "gpus"
        (folder / "proc").mkdir(parents=True)
        named = machine if shipped_file(machine) else Path(machine).resolve()
        nvml = f"fake:{named}@{folder / 'state.json'}"
        fake = FakeMachine.open(nvml)
        # A real container runs real programs, which load libcuda.
        libcuda = compiled_libcuda() if cluster.runs_programs else None
        build_driver_root(folder / "driver", fake, libcuda=libcuda)
        build_sysfs(folder, fake)
        if not cluster.runs_programs:
            memory_hook = memory_hook or played_hook(folder)
            if knows_limits(fake.state.driver_version):
                fake.pretend_cgroups(node.cgroup_dir)  # the embedded runtime makes those, and no real ones
        return cls(
            cluster=cluster,
            node=node,
            nvml=nvml,
            driver_root=str(folder / "driver"),
            sysfs_root=folder / "sys",
            # An empty one: the processes of this machine are not those of the fake node.
            proc_root=folder / "proc",
            own_shm=cluster.runs_programs,
            launcher=launcher,
            packages=packages,
            memory_hook=memory_hook,
            machine=fake,
            folder=folder,
        )

    def end_mps(self) -> None:
        """End the MPS supervisor, if it was started, and then the daemons, which outlive it."""
        if f"{MPS}-{self.node.name}" in self.cluster.processes.names():
            self.process(MPS).kill()
        # Each device that is shared by MPS has a daemon, with a folder for its pipes.
        for pipes in self.mps_dir.glob("*/pipe"):
            with suppress(DaemonGone):
                line = Connection(pipes, PRIVILEGED)
                line.send({"command": "quit -t 0"})
                line.wait_for_end(END_SECONDS)
                line.close()


def played_hook(folder: Path) -> Path:
    """A new program in place of gpu-memory-hook, which the embedded runtime imitates and never runs."""
    program = folder / "gpu-memory-hook"
    program.write_text("#!/bin/sh\necho the embedded runtime plays this program >&2\nexit 1\n")
    program.chmod(0o755)
    return program


def apply_manifests(cluster: Cluster, packages: Path = PACKAGE_ROOT) -> None:
    """Put the driver's rights and classes into a cluster, and its programs into played containers."""
    cluster.play(GpuPrograms())
    for manifest in (*RIGHTS, *CLASSES):
        cluster.api.apply(packages / manifest)
