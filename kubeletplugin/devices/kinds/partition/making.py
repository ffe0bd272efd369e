"""Makes and destroys MIG partitions for claims, one step at a time; each step is journaled for the claim.

All NVML calls run in the GPU's own thread (its lane). That thread never writes to the disk: a slow disk must
not look like a hanging call. Existing instances are read from NVML each time and never remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.hardware.inventory import Discovery
from driver.hardware.mig_walk import changes_without_reset
from driver.kinds.partition.names import PartitionName, profile_slug
from driver.nvml.api import NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.mig import GpuInstance, GpuInstanceProfile, MigActivation, MigDevice, partition_name
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.devices.kinds.partition import gpu_instances
from kubeletplugin.devices.kinds.partition.record import PartitionRecord

T = TypeVar("T")
Note = Callable[[str, PartitionRecord], None]

_log = get_logger("partitions")

_RESCHEDULE = "delete the pod, so that it is scheduled again with a device that exists"


class Partitions:
    """The partitions of one node's GPUs. Calls for one GPU must not overlap: the caller holds its lock.

    Every method raises NvmlError if NVML does not answer; the same call can then be repeated.
    ``note(step, record)`` is called between changes of the hardware and journals what is known by then.
    Records must be of this load of the driver: ids mean nothing in another one.
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def locate(self, name: PartitionName) -> PartitionRecord:
        """The record for a partition's name on its GPU now; for a static one with its ids and its UUID.

        Raises ClaimRefused if the GPU has no such profile or placement, and for a static partition that does
        not exist (any more).
        """
        locate = _locate_static if name.static else _locate_made
        return self._discovery.on_gpu(name.pci, lambda device, watch: locate(device, watch, name))

    def exists(self, pci: PciAddress, record: PartitionRecord) -> bool:
        """Whether the partition of a complete record, made or static, exists."""
        if record.gpu_instance_id is None or record.compute_instance_id is None:
            return False

        def job(device: NvmlDevice, watch: Watch) -> bool:
            # An instance with the same id but another profile or placement is somebody else's.
            instances = gpu_instances.GpuInstances(pci, device, watch)
            found = gpu_instances.find(record, instances.existing())
            return found is not None and any(
                inside.id == record.compute_instance_id for inside in instances.inside(found.id)
            )

        return self._discovery.on_gpu(pci, job)

    def make(
        self, pci: PciAddress, record: PartitionRecord, ours: frozenset[int], note: Note
    ) -> PartitionRecord:
        """Make the partition at exactly its place, or finish an earlier try; returns its full record.

        The noted steps are ``gpu instance`` and ``compute instance``, each before that is created, and
        ``made`` at the end. ``ours`` are the GPU instances of other claims, for the error message. On an
        error, what was made is undone as far as possible, with the step ``destroyed``, and the first error is
        raised.

        Raises ClaimRefused if MIG mode is off and only a reset turns it on. Raises ClaimBlocked if processes
        keep the mode off, or if an instance that is not this record's is in the way.
        """
        instances = self._existing(pci)
        switched = instances is None
        if switched:
            self._turn_on(pci)
        mine = gpu_instances.made_for(record, instances or ())
        # An instance with this record's profile and place is adopted: an earlier try made it.
        if mine is None:
            _refuse_if_taken(pci, record, instances or (), ours)
        made = record
        try:
            if mine is None:
                attempt = replace(record.unmade, attempted=True)
                # Journaled first. After a crash, an instance at this place is then known to be the claim's.
                note("gpu instance", attempt)
                made = attempt
                mine = self._changed(pci, self._creation(pci, made))
            made = replace(made, gpu_instance_id=mine.id)
            note("compute instance", made)
            compute_id, uuid = self._changed(pci, _completion(pci, mine))
            made = replace(made, compute_instance_id=compute_id, uuid=uuid)
            note("made", made)
        except DriverError as error:
            self._take_back(pci, made, error, note)
            if switched:
                self.turn_off_if_empty(pci)
            raise
        return made

    def destroy(self, pci: PciAddress, record: PartitionRecord, note: Note) -> None:
        """Destroy the record's partition or the part of it that exists, then note ``destroyed``.

        The GPU instance is recognised by its profile, its placement and, if known, its id. Everything inside
        is destroyed with it. Raises InstanceInUse while a process uses it.
        """
        # Whatever is in this place was not made for the record.
        if not record.attempted:
            return

        def job(device: NvmlDevice, watch: Watch) -> None:
            instances = gpu_instances.GpuInstances(pci, device, watch)
            mine = gpu_instances.made_for(record, instances.existing())
            if mine is not None:
                instances.destroy(mine, record.profile)

        self._discovery.on_gpu(pci, job)
        note("destroyed", record.unmade)

    def turn_off_if_empty(self, pci: PciAddress) -> None:
        """Turn MIG mode off if no instance is left and the change needs no reset.

        If the mode stays on, the reason is logged. The next claim can handle either mode.
        """

        def job(device: NvmlDevice, watch: Watch) -> str:
            switch = MigSwitch(pci, device, watch)
            if (
                not switch.is_on()
                or gpu_instances.GpuInstances(pci, device, watch).existing()
                or switch.needs_reset()
            ):
                return ""
            activation = switch.set(enabled=False)
            return "" if activation == "done" else activation

        try:
            left_on = self._discovery.on_gpu(pci, job)
        except DriverError as error:
            left_on = str(error)
        if left_on:
            # Not an error: the claim that is unprepared needs nothing more.
            _log.info("MIG mode stays on", gpu=str(pci), reason=left_on)

    def turn_off_for_whole(self, pci: PciAddress) -> None:
        """Turn MIG mode off, if it is on, for a claim that gets the whole GPU.

        Raises ClaimBlocked if GPU instances exist, processes keep the mode on, or the change needs a reset.
        """

        def job(device: NvmlDevice, watch: Watch) -> None:
            switch = MigSwitch(pci, device, watch)
            if not switch.is_on():
                return
            instances = gpu_instances.GpuInstances(pci, device, watch).existing()
            if instances:
                raise ClaimBlocked(
                    f"GPU {pci} cannot be handed out whole: it is divided into "
                    + ", ".join(map(gpu_instances.describe, instances)),
                    "wait until its partitions are gone, or delete the pod, so that it is scheduled again",
                )
            switch.turn_off()

        self._discovery.on_gpu(pci, job)

    def _existing(self, pci: PciAddress) -> tuple[GpuInstance, ...] | None:
        """The existing GPU instances; None if MIG mode is off. Raises ClaimRefused if only a reset helps."""

        def job(device: NvmlDevice, watch: Watch) -> tuple[GpuInstance, ...] | None:
            switch = MigSwitch(pci, device, watch)
            if switch.is_on():
                return gpu_instances.GpuInstances(pci, device, watch).existing()
            switch.refuse_if_reset_needed()
            return None

        return self._discovery.on_gpu(pci, job)

    def _turn_on(self, pci: PciAddress) -> None:
        self._discovery.on_gpu(pci, lambda device, watch: MigSwitch(pci, device, watch).turn_on())

    def _creation(
        self, pci: PciAddress, record: PartitionRecord
    ) -> Callable[[NvmlDevice, Watch], GpuInstance]:
        """The job that creates the GPU instance of a record whose attempt is journaled."""
        is_second_run = False

        def job(device: NvmlDevice, watch: Watch) -> GpuInstance:
            nonlocal is_second_run
            instances = gpu_instances.GpuInstances(pci, device, watch)
            # A job is run again if the NVML session was void; the first run may have made the instance.
            there = gpu_instances.made_for(record, instances.existing()) if is_second_run else None
            is_second_run = True
            return there or instances.create(record)

        return job

    def _changed(self, pci: PciAddress, job: Callable[[NvmlDevice, Watch], T]) -> T:
        """Run a job that changes instances, where MIG mode was on just before."""
        try:
            return self._discovery.on_gpu(pci, job)
        except NotSupported as error:
            # NVML answers this with MIG mode off, and in a vGPU guest, whose host makes the instances.
            if self._discovery.on_gpu(pci, lambda device, watch: MigSwitch(pci, device, watch).is_on()):
                raise ClaimRefused(
                    f"GPU {pci} does not let this machine make MIG instances: {error.what}",
                    "a vGPU gets its partitions from its host; offer this GPU without partitions",
                ) from error
            raise ClaimBlocked(
                f"MIG mode of GPU {pci} was turned off while a partition was being made",
                "another tool turned it off, or the driver was reloaded; the kubelet tries again",
            ) from error

    def _take_back(self, pci: PciAddress, record: PartitionRecord, first: DriverError, note: Note) -> None:
        """Undo a failed make as far as possible; the caller raises the error itself."""
        try:
            if isinstance(first, gpu_instances.NoRoom):
                # Nothing was made, so an instance at this place now is somebody else's.
                note("destroyed", record.unmade)
            else:
                self.destroy(pci, record, note)
        except DriverError as second:
            _log.warning(
                "cannot undo a partition that failed yet",
                gpu=str(pci),
                profile=record.profile,
                start=record.start,
                error=str(second),
            )


def _completion(pci: PciAddress, owner: GpuInstance) -> Callable[[NvmlDevice, Watch], tuple[int, str]]:
    """The job that fills a GPU instance with one compute instance, or finds it; returns its id and UUID."""

    def job(device: NvmlDevice, watch: Watch) -> tuple[int, str]:
        instances = gpu_instances.GpuInstances(pci, device, watch)
        compute = instances.fill(owner)
        return compute.id, instances.uuid(owner, compute)

    return job


def _refuse_if_taken(
    pci: PciAddress, record: PartitionRecord, instances: tuple[GpuInstance, ...], ours: frozenset[int]
) -> None:
    """Raise ClaimBlocked if another instance is in the record's place."""
    for other in instances:
        if not other.placement.overlaps(record.placement):
            continue
        place = f"the place of {record.profile} at memory slice {record.start} of GPU {pci}"
        if other.id in ours:
            raise ClaimBlocked(
                f"{place} is taken by {gpu_instances.describe(other)}, which another claim has or had",
                "it is destroyed when that claim is unprepared and no process uses it",
            )
        raise ClaimBlocked(
            f"{place} is taken by {gpu_instances.describe(other)}, which this driver did not make",
            f"destroy it (nvidia-smi mig -i {pci} -dci -gi {other.id}, then -dgi -gi {other.id}), or "
            "delete the pod, so that it is scheduled again",
        )


def _locate_made(device: NvmlDevice, watch: Watch, name: PartitionName) -> PartitionRecord:
    """The profile and placement of a partition that is made for claims; it need not exist yet.

    Raises ClaimRefused if the GPU has no such profile, or not at that place.
    """
    profiles = _profiles(device, watch)
    for profile in profiles:
        # A device name is a DNS label, so it has the profile without the dots and signs of NVML's name.
        if profile_slug(profile.name) != name.profile:
            continue
        # The placements that the profile can ever have, whatever exists now.
        places = watch("gpu_instance_placements", lambda: device.gpu_instance_placements(profile.id))  # noqa: B023
        for place in places:
            if place.start == name.start:
                return PartitionRecord(
                    profile.name, profile.id, place.start, place.size, memory_bytes=profile.memory_bytes
                )
        starts = ", ".join(str(place.start) for place in places)
        raise ClaimRefused(
            f"a partition {profile.name} of GPU {name.pci} cannot begin at memory slice {name.start}, only "
            f"at {starts}",
            _RESCHEDULE,
        )
    offered = ", ".join(profile.name for profile in profiles) or "none: it has no MIG"
    raise ClaimRefused(
        f"GPU {name.pci} has no MIG profile {name.profile}; its profiles are {offered}", _RESCHEDULE
    )


def _locate_static(device: NvmlDevice, watch: Watch, name: PartitionName) -> PartitionRecord:
    """A partition that exists, whoever made it; raises ClaimRefused if there is none (any more)."""
    profiles = {profile.id: profile for profile in _profiles(device, watch)}
    instances = gpu_instances.GpuInstances(name.pci, device, watch)
    # A GPU instance may have several compute instances. Each is a MIG device and a static partition.
    owners = {owner.id: owner for owner in instances.existing() if owner.placement.start == name.start}
    for seen in watch("mig_devices", device.mig_devices) if owners else ():
        owner = owners.get(seen.gpu_instance_id)
        profile = profiles.get(owner.profile_id) if owner else None
        if owner is None or profile is None:
            continue
        found = partition_name(profile, seen.compute_instance_slices)
        if profile_slug(found) == name.profile and _is_meant(instances, seen, name):
            return PartitionRecord(
                found,
                owner.profile_id,
                owner.placement.start,
                owner.placement.size,
                gpu_instance_id=owner.id,
                compute_instance_id=seen.compute_instance_id,
                uuid=seen.uuid,
                memory_bytes=profile.memory_bytes,
            )
    raise ClaimRefused(
        f"the partition {name.profile} at memory slice {name.start} of GPU {name.pci} does not exist any "
        "more",
        _RESCHEDULE,
    )


def _profiles(device: NvmlDevice, watch: Watch) -> tuple[GpuInstanceProfile, ...]:
    try:
        return watch("gpu_instance_profiles", device.gpu_instance_profiles)
    except NotSupported:
        return ()


def _is_meant(instances: gpu_instances.GpuInstances, seen: MigDevice, name: PartitionName) -> bool:
    """Whether a compute instance is the one that the name means by its first compute slice."""
    if name.compute_start is None:
        return True
    return any(
        inside.id == seen.compute_instance_id and inside.placement.start == name.compute_start
        for inside in instances.inside(seen.gpu_instance_id)
    )


class MigSwitch:
    """Turns the MIG mode of one GPU on and off in a job of its thread, but never if that needs a reset."""

    def __init__(self, pci: PciAddress, device: NvmlDevice, watch: Watch) -> None:
        self._pci = pci
        self._device = device
        self._watch = watch

    def is_on(self) -> bool:
        """Whether MIG mode is on now; False on a GPU without MIG."""
        try:
            return self._watch("mig_mode", self._device.mig_mode).enabled
        except NotSupported:
            return False

    def needs_reset(self) -> bool:
        """Whether the mode changes only by a reset of the GPU, as on an A100."""
        return not changes_without_reset(self._device, self._watch)

    def refuse_if_reset_needed(self) -> None:
        """Raise ClaimRefused if only a reset turns the mode on."""
        if self.needs_reset():
            raise ClaimRefused(
                f"MIG mode of GPU {self._pci} is off, and turning it on needs a reset of the GPU, which "
                "this driver never does for a claim",
                f"turn it on (nvidia-smi -i {self._pci} -mig 1, then --gpu-reset) while nothing uses the "
                "GPU, or delete the pod, so that it is scheduled again",
            )

    def turn_on(self) -> None:
        """Turn the mode on if no reset is needed; raises ClaimBlocked while processes keep it off."""
        self._require("on", self.set(enabled=True))

    def turn_off(self) -> None:
        """Turn the mode off; raises ClaimBlocked while processes keep it on, or if it needs a reset."""
        if self.needs_reset():
            raise ClaimBlocked(
                f"GPU {self._pci} cannot be handed out whole: its MIG mode is on, and turning it off needs "
                "a reset of the GPU, which this driver never does for a claim",
                f"turn it off (nvidia-smi -i {self._pci} -mig 0, then --gpu-reset) while nothing uses it",
            )
        self._require("off", self.set(enabled=False))

    def set(self, *, enabled: bool) -> MigActivation:
        """Set the mode; if it does not change at once, it is left as before and nothing stays pending."""
        activation = self._watch("set_mig_mode", lambda: self._device.set_mig_mode(enabled))
        if activation != "done":
            # NVML keeps a mode that it could not activate as pending, and the next reset would activate it.
            self._watch("set_mig_mode", lambda: self._device.set_mig_mode(not enabled))
        return activation

    def _require(self, wanted: str, activation: MigActivation) -> None:
        if activation == "in-use":
            who, for_log = gpu_instances.describe_processes(
                self._watch("process_ids", self._device.process_ids)
            )
            raise ClaimBlocked(
                f"MIG mode of GPU {self._pci} cannot be turned {wanted}: the GPU is used by {who}",
                "end them; the kubelet tries again",
                for_log=f"used by {for_log}",
            )
        if activation == "reset-required":
            raise ClaimBlocked(
                f"MIG mode of GPU {self._pci} cannot be turned {wanted}: the GPU has to be reset",
                f"reset it (nvidia-smi -i {self._pci} --gpu-reset) while nothing uses it",
            )
