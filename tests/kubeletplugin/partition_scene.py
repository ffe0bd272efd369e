"""A fake machine and the partitions of its GPUs, with what was noted on the way."""

from dataclasses import replace
from pathlib import Path

from kubeletplugin.devices.kinds.partition.making import Partitions
from tests.gpus import (
    ComputeInstance,
    Discovery,
    FakeMachine,
    GpuInstance,
    Guard,
    NvmlDevice,
    PartitionName,
    PciAddress,
    Placement,
    StorageError,
    Watch,
)
from tests.kubeletplugin.fake_node import Crash
from tests.kubeletplugin.fake_roots import lay_sysfs
from tests.plugin import PartitionRecord


class Scene:
    """What a test has at hand. ``noted`` is the last record that the journal would hold."""

    def __init__(self, folder: Path, machine: str, deadline_seconds: float = 5.0) -> None:
        self.machine = FakeMachine.open(machine)
        self.guard = Guard(deadline_seconds)
        self.discovery = Discovery(self.machine.nvml(), lay_sysfs(folder, self.machine), self.guard)
        self.partitions = Partitions(self.discovery)
        self.steps: list[str] = []
        self.noted: PartitionRecord | None = None
        self.crash_after: str | None = None
        self.disk_full_at: str | None = None

    def pci(self, gpu: int = 0) -> PciAddress:
        """The address of a GPU."""
        return self.machine.pci(gpu)

    def located(self, profile: str, start: int, gpu: int = 0) -> PartitionRecord:
        """The fresh record of a partition that is made on request; ``profile`` is as device names have it."""
        return self.partitions.locate(PartitionName(self.pci(gpu), profile, start))

    def make(
        self, record: PartitionRecord, gpu: int = 0, ours: frozenset[int] = frozenset()
    ) -> PartitionRecord:
        """Make a partition, with the notes of this scene."""
        return self.partitions.make(self.pci(gpu), record, ours, self.note)

    def destroy(self, record: PartitionRecord, gpu: int = 0) -> None:
        """Destroy a partition, with the notes of this scene."""
        self.partitions.destroy(self.pci(gpu), record, self.note)

    def note(self, step: str, record: PartitionRecord) -> None:
        """What the journal does, or fails to do."""
        if step == self.disk_full_at:
            raise StorageError("no space left on device", "make room")
        self.steps.append(step)
        self.noted = record
        if step == self.crash_after:
            self.crash_after = None
            raise Crash(step)

    def instances(self, gpu: int = 0) -> tuple[GpuInstance, ...]:
        """The GPU instances that exist."""
        return tuple(
            GpuInstance(gi.id, gi.profile_id, gi.placement)
            for gi in self.machine.state.gpus[self.pci(gpu)].mig.instances
        )

    def mode(self, gpu: int = 0) -> tuple[bool, bool]:
        """MIG mode now and pending."""
        mig = self.machine.state.gpus[self.pci(gpu)].mig
        return mig.enabled, mig.pending

    def turn_on(self, gpu: int = 0) -> None:
        """What an admin does: MIG mode on, with a reset where that is needed."""

        def job(device: NvmlDevice, watch: Watch) -> str:
            return watch("set_mig_mode", lambda: device.set_mig_mode(True))

        if self.discovery.on_gpu(self.pci(gpu), job) == "reset-required":
            self.machine.reset(gpu)

    def foreign(self, profile_id: int, start: int, size: int, gpu: int = 0) -> GpuInstance:
        """What an admin does: a GPU instance without a compute instance."""
        place = Placement(start, size)
        return self.discovery.on_gpu(
            self.pci(gpu),
            lambda device, watch: watch(
                "create_gpu_instance", lambda: device.create_gpu_instance(profile_id, place)
            ),
        )

    def foreign_part(self, owner: GpuInstance, profile_id: int, gpu: int = 0) -> ComputeInstance:
        """What an admin does: a compute instance."""
        return self.discovery.on_gpu(
            self.pci(gpu),
            lambda device, watch: watch(
                "create_compute_instance", lambda: device.create_compute_instance(owner.id, profile_id)
            ),
        )

    def static(self, profile: str, start: int, compute_start: int | None = None) -> PartitionRecord:
        """The record of a partition that an admin made on the first GPU."""
        name = PartitionName(self.pci(), profile, start, static=True, compute_start=compute_start)
        return self.partitions.locate(name)


def unmade(record: PartitionRecord) -> PartitionRecord:
    """The record with nothing made."""
    return replace(record, attempted=False, gpu_instance_id=None, compute_instance_id=None, uuid="")
