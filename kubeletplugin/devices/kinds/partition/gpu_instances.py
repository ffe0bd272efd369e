"""The GPU instances of one GPU within a job of its lane: what exists, creation, and destruction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driver.errors import ClaimBlocked
from driver.nvml.api import (
    Code,
    DriverNotLoaded,
    InstanceNotFound,
    NotSupported,
    NvmlCallFailed,
    NvmlDevice,
    SessionLost,
)
from driver.nvml.deadline import Watch
from driver.nvml.mig import ComputeInstance, ComputeInstanceProfile, GpuInstance
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from kubeletplugin.devices.vfio.users import PROC, shown, user_of


class InstanceInUse(ClaimBlocked):
    """A process uses an instance, so it cannot be destroyed; ``process_ids`` is empty if NVML names none."""

    def __init__(self, what: str, way_out: str, process_ids: tuple[int, ...], *, for_log: str) -> None:
        super().__init__(what, way_out, for_log=for_log)
        self.process_ids = process_ids


class NoRoom(ClaimBlocked):
    """Other instances have taken what a GPU instance needs; nothing was made."""


class GpuInstances:
    """One GPU's instances, by its handle; a void session raises, so that the job is repeated."""

    def __init__(self, pci: PciAddress, device: NvmlDevice, watch: Watch) -> None:
        self._pci = pci
        self._device = device
        self._watch = watch

    def existing(self) -> tuple[GpuInstance, ...]:
        """The existing instances; none with MIG mode off."""
        try:
            return self._watch("gpu_instances", self._device.gpu_instances)
        except NotSupported:
            return ()

    def inside(self, gpu_instance_id: int) -> tuple[ComputeInstance, ...]:
        """The compute instances in a GPU instance; none where that is gone."""
        try:
            return self._watch("compute_instances", lambda: self._device.compute_instances(gpu_instance_id))
        except InstanceNotFound:
            return ()

    def create(self, record: PartitionRecord) -> GpuInstance:
        """Create the GPU instance of a record; an error of a call that did its work all the same is ignored.

        Raises NoRoom when other instances have taken what it needs.
        """
        try:
            return self._watch(
                "create_gpu_instance",
                lambda: self._device.create_gpu_instance(record.profile_id, record.placement),
            )
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed as error:
            instances = self.existing()
            if error.code == Code.INSUFFICIENT_RESOURCES:
                raise NoRoom(
                    f"GPU {self._pci} has no room for {record.profile} at memory slice {record.start} beside "
                    + (", ".join(map(described, instances)) or "what holds its engines"),
                    "wait until they are gone, or delete the pod, so that it is scheduled anew",
                ) from error
            there = find(record, instances)
            if there is None:
                raise
            return there

    def fill(self, owner: GpuInstance) -> ComputeInstance:
        """The compute instance that is all of a GPU instance: a new one, or the one that is there."""
        profiles = self._watch(
            "compute_instance_profiles", lambda: self._device.compute_instance_profiles(owner.id)
        )
        if not profiles:
            raise ClaimBlocked(
                f"NVML offers no compute instance in {described(owner)} of GPU {self._pci}",
                "the kubelet tries again; if it stays so, look for NVIDIA messages in the kernel log",
            )
        whole = max(profiles, key=_size)
        try:
            return self._watch(
                "create_compute_instance", lambda: self._device.create_compute_instance(owner.id, whole.id)
            )
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            # There is no room beside one that is there, made by an earlier try, or by this call all the same.
            for inside in self.inside(owner.id):
                if inside.profile_id == whole.id:
                    return inside
            raise

    def uuid(self, owner: GpuInstance, compute: ComputeInstance) -> str:
        """The MIG UUID of a compute instance; raises ClaimBlocked while NVML does not list it."""
        for found in self._watch("mig_devices", self._device.mig_devices):
            if (found.gpu_instance_id, found.compute_instance_id) == (owner.id, compute.id):
                return found.uuid
        raise ClaimBlocked(
            f"NVML lists no MIG device for compute instance {compute.id} in {described(owner)} of GPU "
            f"{self._pci}",
            "the kubelet tries again; if it stays so, look for NVIDIA messages in the kernel log",
        )

    def destroy(self, owner: GpuInstance, profile: str) -> None:
        """Destroy a GPU instance and all inside; gone is fine. Raises InstanceInUse."""
        for compute in self.inside(owner.id):
            self._end(owner, profile, compute)
        self._end(owner, profile)

    def _end(self, owner: GpuInstance, profile: str, compute: ComputeInstance | None = None) -> None:
        """Destroy a compute instance, or the GPU instance itself; an error of a call that did it is none."""
        try:
            if compute is None:
                self._watch("destroy_gpu_instance", lambda: self._device.destroy_gpu_instance(owner.id))
            else:
                self._watch(
                    "destroy_compute_instance",
                    lambda: self._device.destroy_compute_instance(owner.id, compute.id),
                )
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed as error:
            left: tuple[GpuInstance | ComputeInstance, ...] = self.existing()
            if compute is not None:
                left = self.inside(owner.id)
            if (compute or owner) not in left:
                return
            if error.code == Code.IN_USE:
                raise self._in_use(owner, profile) from error
            raise

    def _in_use(self, owner: GpuInstance, profile: str) -> InstanceInUse:
        users = self._watch("mig_processes", self._device.mig_processes)
        holding = sorted({user.process_id for user in users if user.gpu_instance_id == owner.id})
        who, told = processes(holding)
        return InstanceInUse(
            f"partition {profile} ({described(owner)}) of GPU {self._pci} is still used by {who}",
            "end them; until then the partition and its place stay taken, and destroying it is tried again",
            tuple(holding),
            for_log=f"used by {told}",
        )


def find(record: PartitionRecord, instances: Iterable[GpuInstance]) -> GpuInstance | None:
    """The instance of the record's profile at exactly its place, with its id where that is known."""
    for instance in instances:
        same = (instance.profile_id, instance.placement) == (record.profile_id, record.placement)
        if same and record.gpu_instance_id in (None, instance.id):
            return instance
    return None


def own(record: PartitionRecord, instances: Iterable[GpuInstance]) -> GpuInstance | None:
    """The instance that was made for the record: before an attempt was noted, nothing is."""
    return find(record, instances) if record.attempted else None


def described(instance: GpuInstance) -> str:
    """An instance for people, in the words of nvidia-smi."""
    place = instance.placement
    return (
        f"GPU instance {instance.id} (profile id {instance.profile_id}, placement {place.start}:{place.size})"
    )


def processes(process_ids: Iterable[int], proc: Path = PROC) -> tuple[str, str]:
    """The processes as the requester may see them, and as the node's log has them."""
    users = [user_of(process_id, proc) for process_id in process_ids]
    nobody = "a process that NVML does not name (a monitor, perhaps)"
    return shown(users) if users else (nobody, nobody)


def _size(profile: ComputeInstanceProfile) -> tuple[int, int]:
    return profile.slices, profile.multiprocessors
