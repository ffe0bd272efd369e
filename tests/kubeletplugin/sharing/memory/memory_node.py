"""A node whose GPUs take memory limits: claims in the journal, and a runtime that starts containers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kubeletplugin.sharing.memory.claim_memory import ClaimMemory
from tests.gpus import (
    Cgroup,
    Discovery,
    DriverError,
    FakeCudaClient,
    Guard,
    MemoryLimits,
    NvmlDevice,
    PciAddress,
    Watch,
    gpu_device_name,
)
from tests.kubeletplugin.fake_node import POOL, FakeNode
from tests.plugin import ContainerName, ContainerStart, Entry, HeldDevice, ShareRecord, boottime_ns

T = TypeVar("T")

GIB = 1 << 30
MIB = 1 << 20
L4_BYTES = (23034 - 470) * MIB


@dataclass(frozen=True, slots=True)
class Container:
    """A container that the runtime has made: its group is there, its processes wait."""

    start: ContainerStart
    cgroup: Cgroup

    @property
    def name(self) -> ContainerName:
        return ContainerName(self.start.namespace, self.start.pod, self.start.container)


class Meddled(Discovery):
    """GPUs with which ``meddle`` does something before each call of the plugin."""

    meddle: Callable[[], None] = staticmethod(lambda: None)

    def on_gpu(self, pci: PciAddress, job: Callable[[NvmlDevice, Watch], T]) -> T:
        """Let others come first."""
        self.meddle()
        return super().on_gpu(pci, job)


class MemoryNode(FakeNode):
    """Four L4 that take limits, and who plays the kubelet and the runtime.

    ``meddle`` is called before each time that the plugin asks a GPU.
    """

    def __init__(self, folder: Path, machine: str = "l4-quad", *, on_disk: bool = False) -> None:
        self.made = 0
        self.meddle: Callable[[], None] = lambda: None
        super().__init__(folder, machine, on_disk=on_disk)

    def discovering(self, guard: Guard) -> Discovery:
        """Let whoever meddles do so."""

        def meddle() -> None:
            self.meddle()

        found = Meddled(self.machine.nvml(), self.sysfs, guard)
        found.meddle = meddle
        return found

    def be_patient(self, seconds: float) -> None:
        """Have a plugin that waits so long."""
        self.patience_seconds = seconds
        self.restart()

    def begin_again(self) -> None:
        """End the plugin and start it anew, while another instance goes on."""
        self.leave()
        parts = self.instance()
        self._peers, self.journal, self.memory = parts.peers, parts.journal, parts.memory

    def pci(self, gpu: int = 0) -> str:
        return str(self.gpus[gpu])

    def held(
        self, uid: str, limit_bytes: int, *, gpu: int = 0, request: str = "gpu", mps: bool = False
    ) -> HeldDevice:
        """A share of a GPU that a claim holds."""
        device = f"{gpu_device_name(self.gpus[gpu])}-{'mps' if mps else 'ts'}-mem"
        share = ShareRecord(device, "MPS" if mps else "TimeSlicing", memory_bytes=limit_bytes)
        cdi = f"{uid}-{device}-{request}"
        uuid = self.machine.uuid(self.gpus[gpu])
        return HeldDevice(
            request, POOL, device, self.pci(gpu), uuid, cdi, kind="whole", share=share,
            memory_limit_bytes=limit_bytes,
        )  # fmt: skip

    def hold(self, uid: str, *devices: HeldDevice) -> tuple[str, ...]:
        """Put a prepared claim into the journal; the CDI devices that it has."""
        entry = Entry(uid, "team", uid, "prepared", boottime_ns(), devices, "sha")
        self.journal.put(replace(entry, driver_generation=self.driver_generation))
        return tuple(device.cdi_device for device in devices)

    def share(self, uid: str, limit_bytes: int, *, gpu: int = 0, mps: bool = False) -> str:
        """Prepare a claim with one share; its CDI device."""
        return self.hold(uid, self.held(uid, limit_bytes, gpu=gpu, mps=mps))[0]

    def release(self, uid: str) -> None:
        """Have the claim's entry released, and its memory forgotten."""
        entry = self.journal.get(uid)
        assert entry is not None
        self.journal.put(replace(entry, state="released", devices=()))
        self.memory.forget(uid)

    def announce(self, cdi_device: str, *names: str, pod: str = "pod") -> None:
        """Let the kubelet list containers of a pod for a device, beside those that it lists already."""
        assert not isinstance(self.listed_containers, DriverError)
        listed = self.listed_containers.get(cdi_device, frozenset())
        more = frozenset(ContainerName("team", pod, name) for name in names)
        self.listed_containers = {**self.listed_containers, cdi_device: listed | more}

    def container(
        self, cdi_device: str, name: str = "main", *, pod: str = "pod", cgroup: Cgroup | None = None
    ) -> Container:
        """Make a container of a pod with a device, as the runtime does before it runs its hooks."""
        self.made += 1
        group = cgroup or self.cgroups.make(f"/kubepods.slice/{pod}/{name}-{self.made}")
        told = f"0::{group.path.removeprefix('/sys/fs/cgroup')}\n"
        uid = cdi_device.partition("-gpu-")[0]
        start = ContainerStart(uid, cdi_device, f"{name}-{self.made}", told, "team", pod, name)
        return Container(start, group)

    def run(
        self, cdi_device: str, name: str = "main", *, pod: str = "pod", cgroup: Cgroup | None = None
    ) -> Container:
        """Make a container and have its hook answered; raises what the plugin refuses with."""
        container = self.container(cdi_device, name, pod=pod, cgroup=cgroup)
        self.start(container)
        return container

    def start(self, container: Container, memory: ClaimMemory | None = None) -> None:
        """Have the container's hook answered; a container that is refused is removed by the runtime."""
        try:
            (memory or self.memory).start(container.start)
        except DriverError:
            self.end(container)
            raise

    def end(self, container: Container) -> None:
        """Have a container end: the runtime removes its group."""
        self.cgroups.remove(container.cgroup.path)

    def cuda(self, container: Container, gpu: int = 0) -> FakeCudaClient:
        """A program in the container that uses a GPU."""
        return self.machine.cuda(self.gpus[gpu], container.cgroup.path)

    def limits(self, container: Container, gpu: int = 0) -> MemoryLimits:
        """What NVML holds the container to; raises NoMemoryLimits."""
        nvml = self.machine.nvml()
        nvml.init()
        try:
            return nvml.device_by_pci(self.gpus[gpu]).memory_limits(container.cgroup.path)
        finally:
            nvml.shutdown()

    def hard(self, container: Container, gpu: int = 0) -> int:
        """The most that NVML lets the container allocate."""
        return self.limits(container, gpu).hard_bytes

    def files(self) -> list[str]:
        """The names of the ledger's files."""
        return sorted(path.name for path in (self.boot_files / "memory").iterdir())
