"""Makes and destroys MIG partitions for claims, one step at a time, each told to the caller's journal.

All NVML calls run in the GPU's lane. Nothing is written from there: what waits for a disk must not look
like a call that hangs. What exists is asked of NVML each time and never remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.hardware.inventory import Discovery
from driver.kinds.partition.names import PartitionName
from driver.nvml.api import NotSupported, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.mig import GpuInstance
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.devices.kinds.partition.gpu_instances import GpuInstances, NoRoom, described, find, own
from kubeletplugin.devices.kinds.partition.lookup import locate_made, locate_static
from kubeletplugin.devices.kinds.partition.mig_mode import MigSwitch
from kubeletplugin.devices.kinds.partition.record import PartitionRecord

T = TypeVar("T")
Note = Callable[[str, PartitionRecord], None]

_log = get_logger("partitions")


class Partitions:
    """The partitions of one node's GPUs. Calls for one GPU must not overlap: the caller holds its lock.

    Every call raises NvmlError when NVML gives no answer; then it can be repeated as it was.
    ``note(step, record)`` is called between changes of hardware with what is known by then, and has
    written it down when it returns. Records are those of this era: ids mean nothing in another.
    """

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def locate(self, name: PartitionName) -> PartitionRecord:
        """What a partition's name means on its GPU now; a static one with its ids and its UUID.

        Raises ClaimRefused where the GPU has no such profile or place, and for a static partition that
        is not there (any more).
        """
        look = locate_static if name.static else locate_made
        return self._discovery.on_gpu(name.pci, lambda device, watch: look(device, watch, name))

    def exists(self, pci: PciAddress, record: PartitionRecord) -> bool:
        """Whether the partition of a complete record, made or static, is there."""
        if record.gpu_instance_id is None or record.compute_instance_id is None:
            return False

        def job(device: NvmlDevice, watch: Watch) -> bool:
            instances = GpuInstances(pci, device, watch)
            found = find(record, instances.existing())
            return found is not None and any(
                inside.id == record.compute_instance_id for inside in instances.inside(found.id)
            )

        return self._discovery.on_gpu(pci, job)

    def make(
        self, pci: PciAddress, record: PartitionRecord, ours: frozenset[int], note: Note
    ) -> PartitionRecord:
        """Make the partition at exactly its place, or finish what an earlier try left; the full record.

        Steps noted: ``gpu instance`` before that is created, ``compute instance`` before that is, ``made``
        once all is known. ``ours`` are the GPU instances of
        other claims, for the message. On an error, what was made is taken back as far as that goes, with
        the step ``destroyed``, and the first error is raised.

        Raises ClaimRefused where MIG mode is off and only a reset turns it on, ClaimBlocked where
        processes keep it off, or an instance that is not this record's lies in the way.
        """
        instances = self._existing(pci)
        switched = instances is None
        if switched:
            self._turn_on(pci)
        mine = own(record, instances or ())
        if mine is None:
            _refuse_if_taken(pci, record, instances or (), ours)
        made = record
        try:
            if mine is None:
                attempt = replace(record.unmade, attempted=True)
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
                self.rest(pci)
            raise
        return made

    def destroy(self, pci: PciAddress, record: PartitionRecord, note: Note) -> None:
        """Destroy the record's partition, or what there is of it, then note ``destroyed``; gone is fine.

        A GPU instance is the record's by its profile, its place and, where known, its id; all that is
        inside goes with it. Raises InstanceInUse while a process holds it.
        """
        if not record.attempted:
            return

        def job(device: NvmlDevice, watch: Watch) -> None:
            instances = GpuInstances(pci, device, watch)
            mine = own(record, instances.existing())
            if mine is not None:
                instances.destroy(mine, record.profile)

        self._discovery.on_gpu(pci, job)
        note("destroyed", record.unmade)

    def rest(self, pci: PciAddress) -> None:
        """Turn MIG mode off after the last partition, where no instance is left and no reset is needed.

        What keeps it on is logged: the next whole GPU or partition finds the mode as it is.
        """

        def job(device: NvmlDevice, watch: Watch) -> str:
            switch = MigSwitch(pci, device, watch)
            if not switch.is_on() or GpuInstances(pci, device, watch).existing() or not switch.is_free():
                return ""
            activation = switch.set(enabled=False)
            return "" if activation == "done" else activation

        try:
            left_on = self._discovery.on_gpu(pci, job)
        except DriverError as error:
            left_on = str(error)
        if left_on:
            _log.info("MIG mode stays on", gpu=str(pci), reason=left_on)

    def ready_for_whole(self, pci: PciAddress) -> None:
        """Turn MIG mode off, if it is on, for a claim that gets the whole GPU.

        Raises ClaimBlocked where GPU instances exist, processes keep the mode on, or it needs a reset.
        """

        def job(device: NvmlDevice, watch: Watch) -> None:
            switch = MigSwitch(pci, device, watch)
            if not switch.is_on():
                return
            instances = GpuInstances(pci, device, watch).existing()
            if instances:
                raise ClaimBlocked(
                    f"GPU {pci} cannot be handed out whole: it is cut into "
                    + ", ".join(map(described, instances)),
                    "it is whole again when its partitions are gone; delete the pod, so that it is "
                    "scheduled anew",
                )
            switch.turn_off()

        self._discovery.on_gpu(pci, job)

    def _existing(self, pci: PciAddress) -> tuple[GpuInstance, ...] | None:
        """The GPU instances that there are; None with MIG mode off. Refuses where only a reset helps."""

        def job(device: NvmlDevice, watch: Watch) -> tuple[GpuInstance, ...] | None:
            switch = MigSwitch(pci, device, watch)
            if switch.is_on():
                return GpuInstances(pci, device, watch).existing()
            switch.refuse_unless_free()
            return None

        return self._discovery.on_gpu(pci, job)

    def _turn_on(self, pci: PciAddress) -> None:
        self._discovery.on_gpu(pci, lambda device, watch: MigSwitch(pci, device, watch).turn_on())

    def _creation(
        self, pci: PciAddress, record: PartitionRecord
    ) -> Callable[[NvmlDevice, Watch], GpuInstance]:
        """The job that creates the GPU instance of a record, whose attempt is noted."""
        begun = False

        def job(device: NvmlDevice, watch: Watch) -> GpuInstance:
            nonlocal begun
            instances = GpuInstances(pci, device, watch)
            # A job is done again when the session was void: by then the instance may be there.
            there = own(record, instances.existing()) if begun else None
            begun = True
            return there or instances.create(record)

        return job

    def _changed(self, pci: PciAddress, job: Callable[[NvmlDevice, Watch], T]) -> T:
        """Do a job that changes instances, while MIG mode was on just before."""
        try:
            return self._discovery.on_gpu(pci, job)
        except NotSupported as error:
            if self._discovery.on_gpu(pci, lambda device, watch: MigSwitch(pci, device, watch).is_on()):
                raise ClaimRefused(
                    f"GPU {pci} lets nobody make MIG instances from here: {error.what}",
                    "a vGPU has its partitions from its host; offer this GPU as it is",
                ) from error
            raise ClaimBlocked(
                f"MIG mode of GPU {pci} went off while a partition was being made",
                "another tool turned it off, or the driver was reloaded; the kubelet tries again",
            ) from error

    def _take_back(self, pci: PciAddress, record: PartitionRecord, first: DriverError, note: Note) -> None:
        """Undo a make that ended in an error, as far as that goes; the error itself is the caller's."""
        try:
            if isinstance(first, NoRoom):
                # Nothing was made: what lies at the place now is not the record's, and never will be.
                note("destroyed", record.unmade)
            else:
                self.destroy(pci, record, note)
        except DriverError as second:
            _log.warning(
                "a partition that failed is not taken back yet",
                gpu=str(pci),
                profile=record.profile,
                start=record.start,
                error=str(second),
            )


def _completion(pci: PciAddress, owner: GpuInstance) -> Callable[[NvmlDevice, Watch], tuple[int, str]]:
    """The job that fills a GPU instance with one compute instance, or finds it: its id and its UUID."""

    def job(device: NvmlDevice, watch: Watch) -> tuple[int, str]:
        instances = GpuInstances(pci, device, watch)
        compute = instances.fill(owner)
        return compute.id, instances.uuid(owner, compute)

    return job


def _refuse_if_taken(
    pci: PciAddress, record: PartitionRecord, instances: tuple[GpuInstance, ...], ours: frozenset[int]
) -> None:
    """Raise ClaimBlocked when an instance lies where the record's is to lie."""
    for other in instances:
        if not other.placement.overlaps(record.placement):
            continue
        place = f"the place of {record.profile} at memory slice {record.start} of GPU {pci}"
        if other.id in ours:
            raise ClaimBlocked(
                f"{place} is taken by {described(other)}, which another claim has or had",
                "it is destroyed when that claim is unprepared and no process uses it",
            )
        raise ClaimBlocked(
            f"{place} is taken by {described(other)}, which this driver did not make",
            f"destroy it (nvidia-smi mig -i {pci} -dci -gi {other.id}, then -dgi -gi {other.id}), or delete "
            "the pod, so that it is scheduled anew",
        )
