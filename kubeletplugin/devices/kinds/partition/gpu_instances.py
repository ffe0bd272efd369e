"""Reads, creates and destroys the GPU instances of one GPU, within a job of that GPU's NVML thread."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driver.errors import ClaimBlocked
from driver.nvml import api
from driver.nvml.deadline import Watch
from driver.nvml.mig import ComputeInstance, ComputeInstanceProfile, GpuInstance
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.kinds.partition.record import PartitionRecord
from kubeletplugin.devices.vfio.users import PROC, shown, user_of


class InstanceInUse(ClaimBlocked):
    """A process uses an instance that is to be destroyed; ``process_ids`` is empty if NVML names none."""

    def __init__(self, what: str, way_out: str, process_ids: tuple[int, ...], *, for_log: str) -> None:
        super().__init__(what, way_out, for_log=for_log)
        self.process_ids = process_ids


class NoRoom(ClaimBlocked):
    """Other instances have taken the resources that a GPU instance needs; nothing was made."""


class GpuInstances:
    """One GPU's instances, by its NVML handle. Raises if the session is void, so that the job is repeated."""

    def __init__(self, pci: PciAddress, device: api.NvmlDevice, watch: Watch) -> None:
        self._pci = pci
        self._device = device
        self._watch = watch

    def existing(self) -> tuple[GpuInstance, ...]:
        """The existing instances; empty while MIG mode is off."""
        try:
            return self._watch("gpu_instances", self._device.gpu_instances)
        # NVML lists GPU instances only while MIG mode is on.
        except api.NotSupported:
            return ()

    def inside(self, gpu_instance_id: int) -> tuple[ComputeInstance, ...]:
        """The compute instances in a GPU instance; empty if it is gone."""
        try:
            return self._watch("compute_instances", lambda: self._device.compute_instances(gpu_instance_id))
        except api.InstanceNotFound:
            return ()

    def create(self, record: PartitionRecord) -> GpuInstance:
        """Create the GPU instance of a record; raises NoRoom if other instances have taken what it needs."""
        try:
            return self._watch(
                "create_gpu_instance",
                lambda: self._device.create_gpu_instance(record.profile_id, record.placement),
            )
        # Nothing is known of the instance now. The job is run again in a new session, or the driver is gone.
        except (api.SessionLost, api.DriverNotLoaded):
            raise
        except api.NvmlCallFailed as error:
            # A call may fail and have made the instance all the same; then the error does not count.
            instances = self.existing()
            if error.code == api.Code.INSUFFICIENT_RESOURCES:
                raise NoRoom(
                    f"GPU {self._pci} has no room for {record.profile} at memory slice {record.start} next "
                    "to " + (", ".join(map(describe, instances)) or "the users of its engines"),
                    "wait until they are gone, or delete the pod, so that it is scheduled again",
                ) from error
            there = find(record, instances)
            if there is None:
                raise
            return there

    def fill(self, owner: GpuInstance) -> ComputeInstance:
        """Create the compute instance that fills a GPU instance; returns an existing one if there is one."""
        profiles = self._watch(
            "compute_instance_profiles", lambda: self._device.compute_instance_profiles(owner.id)
        )
        if not profiles:
            raise ClaimBlocked(
                f"NVML offers no compute instance in {describe(owner)} of GPU {self._pci}",
                "the kubelet tries again; if this lasts, look for NVIDIA messages in the kernel log",
            )
        # Profiles may have the same number of slices and differ in multiprocessors or engines.
        whole = max(profiles, key=_size)
        try:
            return self._watch(
                "create_compute_instance", lambda: self._device.create_compute_instance(owner.id, whole.id)
            )
        except (api.SessionLost, api.DriverNotLoaded):
            raise
        except api.NvmlCallFailed:
            # An existing one leaves no room. An earlier try made it, or this call did and failed after it.
            for inside in self.inside(owner.id):
                if inside.profile_id == whole.id:
                    return inside
            raise

    def uuid(self, owner: GpuInstance, compute: ComputeInstance) -> str:
        """The MIG UUID of a compute instance; raises ClaimBlocked if NVML does not list it."""
        # A UUID belongs to a MIG device, which NVML lists once a GPU instance has a compute instance.
        for found in self._watch("mig_devices", self._device.mig_devices):
            if (found.gpu_instance_id, found.compute_instance_id) == (owner.id, compute.id):
                return found.uuid
        raise ClaimBlocked(
            f"NVML lists no MIG device for compute instance {compute.id} in {describe(owner)} of GPU "
            f"{self._pci}",
            "the kubelet tries again; if this lasts, look for NVIDIA messages in the kernel log",
        )

    def destroy(self, owner: GpuInstance, profile: str) -> None:
        """Destroy a GPU instance and everything in it, unless it is gone already. Raises InstanceInUse."""
        # NVML destroys a GPU instance only once it has no compute instances.
        for compute in self.inside(owner.id):
            self._end(owner, profile, compute)
        self._end(owner, profile)

    def _end(self, owner: GpuInstance, profile: str, compute: ComputeInstance | None = None) -> None:
        """Destroy a compute instance, or without ``compute`` the GPU instance itself."""
        try:
            if compute is None:
                self._watch("destroy_gpu_instance", lambda: self._device.destroy_gpu_instance(owner.id))
            else:
                self._watch(
                    "destroy_compute_instance",
                    lambda: self._device.destroy_compute_instance(owner.id, compute.id),
                )
        except (api.SessionLost, api.DriverNotLoaded):
            raise
        except api.NvmlCallFailed as error:
            # As when creating: if the instance is gone, the error does not count.
            left: tuple[GpuInstance | ComputeInstance, ...] = self.existing()
            if compute is not None:
                left = self.inside(owner.id)
            if (compute or owner) not in left:
                return
            if error.code == api.Code.IN_USE:
                raise self._in_use(owner, profile) from error
            raise

    def _in_use(self, owner: GpuInstance, profile: str) -> InstanceInUse:
        # The error code does not say who uses the instance.
        users = self._watch("mig_processes", self._device.mig_processes)
        holding = sorted({user.process_id for user in users if user.gpu_instance_id == owner.id})
        who, for_log = describe_processes(holding)
        return InstanceInUse(
            f"partition {profile} ({describe(owner)}) of GPU {self._pci} is still used by {who}",
            "end them; until then the partition keeps its place, and the plugin tries again to destroy it",
            tuple(holding),
            for_log=f"used by {for_log}",
        )


def find(record: PartitionRecord, instances: Iterable[GpuInstance]) -> GpuInstance | None:
    """The instance with the record's profile and placement, and with its id if that is known."""
    for instance in instances:
        same = (instance.profile_id, instance.placement) == (record.profile_id, record.placement)
        if same and record.gpu_instance_id in (None, instance.id):
            return instance
    return None


def made_for(record: PartitionRecord, instances: Iterable[GpuInstance]) -> GpuInstance | None:
    """The instance that was made for the record; None if no attempt was journaled."""
    return find(record, instances) if record.attempted else None


def describe(instance: GpuInstance) -> str:
    """An instance for messages, in the words of nvidia-smi."""
    place = instance.placement
    return (
        f"GPU instance {instance.id} (profile id {instance.profile_id}, placement {place.start}:{place.size})"
    )


def describe_processes(process_ids: Iterable[int], proc: Path = PROC) -> tuple[str, str]:
    """The processes as the claim's error may name them, and as the node's log does; see ``shown``."""
    users = [user_of(process_id, proc) for process_id in process_ids]
    nobody = "a process that NVML does not name (a monitor, perhaps)"
    return shown(users) if users else (nobody, nobody)


def _size(profile: ComputeInstanceProfile) -> tuple[int, int]:
    return profile.slices, profile.multiprocessors
