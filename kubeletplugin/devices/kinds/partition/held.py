"""MIG partitions on the node: made by an admin, or made for a claim and destroyed with it.

Each step of making one is journaled in the claim's entry, before the hardware is changed and after. So the
next call, after a crash or a failure, knows what belongs to the claim and what to somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.names import unshared_name
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.errors import ClaimBlocked
from driver.hardware.gpu import Gpu, Inventory
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.kinds.partition.kind import MADE, STATIC
from driver.nvml.api import DriverNotLoaded
from driver.nvml.mig import GpuInstance, Placement
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.devices.kinds.kind import FoundKind, HardwareNow, NodeKind, NodePorts, Note
from kubeletplugin.devices.kinds.partition.making import Partitions
from kubeletplugin.devices.kinds.partition.record import (
    name_of,
    partition_name,
    record_of,
    written,
)
from kubeletplugin.kubelet.wire.planned import PlannedDevice

_log = get_logger("partitions")


class HeldPartition(NodeKind):
    """What both kinds of partitions have in common."""

    def __init__(self, node: NodePorts) -> None:
        super().__init__(node)
        self._partitions = Partitions(node.discovery)
        self._journal = node.journal

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """Its place; only the first memory slice is known before it is located."""
        name = name_of(held.device)
        return (name.at(record_of(held).placement) if held.record else name.region,)

    def intact(self, held: HeldDevice) -> bool:
        """Whether the instances of its record exist; raises NvmlError."""
        return self._partitions.exists(name_of(held.device).pci, record_of(held))

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The nodes that open the partition and nothing else of its GPU; ClaimBlocked if it is not made."""
        record = record_of(held)
        if record.gpu_instance_id is None or record.compute_instance_id is None:
            raise ClaimBlocked(f"the partition {held.device} is not made yet", "the kubelet tries again")
        minor = hardware.identity(name_of(held.device).pci).minor
        ids = record.gpu_instance_id, record.compute_instance_id
        return Edits(self._node.nodes.instance(minor, *ids, hardware.host))

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """The UUID of the MIG device, empty until it is made."""
        return record_of(held).uuid

    def memory_bytes(self, held: HeldDevice) -> int:
        """The memory of its profile."""
        return record_of(held).memory_bytes

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of its GPU."""
        return gpus.get(name_of(held.device).pci)

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Its GPU and its profile once it exists."""
        record = record_of(held)
        # The slice was published before the partition existed, so the parent and profile are added here.
        if not record.uuid:
            return {}
        return {"parentUUID": held.uuid, "profile": record.profile}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """The PCI address of its GPU, and its profile, which are known without a slice."""
        attributes: dict[str, AttributeValue] = {"resource.kubernetes.io/pciBusID": held.pci}
        return attributes | {name: str(value) for name, value in self.status(held).items() if value}


class HeldStatic(FoundKind, HeldPartition):
    """Static partitions: an admin made them, so they are only found, never made or destroyed."""

    offered: OfferedKind = STATIC
    condition = ("PartitionReady", "The partition can be used.")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """The instances at its place now; raises ClaimRefused if there are none (any more)."""
        name = name_of(device.name.device)
        record = self._partitions.locate(name)
        return HeldDevice.of(device, hardware.identity(name.pci).uuid, written(record))


class HeldMade(HeldPartition):
    """Partitions that are made for claims."""

    offered: OfferedKind = MADE
    condition = ("PartitionMade", "The partition exists.")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Its profile and place, or the record of an earlier try or of another claim that shares it.

        Raises ClaimRefused for a partition that the GPU cannot have, ClaimBlocked for admin access to one
        that nobody holds.
        """
        name = name_of(device.name.device)
        found = self._known(device, own) or written(self._partitions.locate(name))
        return HeldDevice.of(device, hardware.identity(name.pci).uuid, found)

    def changes(self, held: HeldDevice) -> bool:
        """Whether the partition is made for this claim; a claim with admin access makes none."""
        return not held.admin_access

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Make the partition, unless another claim that shares it or another request of this one has."""
        held = entry.devices[index]
        record = record_of(held)
        if not self.changes(held):
            return held.record
        # Requests of one claim may get shares of one partition; the first of them makes it.
        twin = next((one for one in entry.devices[:index] if one.device == held.device), None)
        if twin is not None:
            return twin.record
        pci = name_of(held.device).pci
        # The other claim's journal may be ahead of the hardware after a crash, so NVML is asked.
        if self._has_another(entry.uid, held) and self._partitions.exists(pci, record):
            return held.record
        others = self._instances_of_others(held.pci, entry.uid)
        made = self._partitions.make(pci, record, others, lambda step, record: note(step, written(record)))
        return written(made)

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
        """Whether making it was started."""
        return not held.admin_access and record_of(held).attempted

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Destroy it, unless another claim shares it; turn MIG mode off after the last one.

        It is no error if the partition is gone already, or the driver with it. A GPU that is lost, or whose
        driver only misses its library, may come back with the partition: until then it stays known as ours.
        """
        held = entry.devices[index]
        record = record_of(held)
        if self._has_another(entry.uid, held):
            return self.unmade(held)
        pci = name_of(held.device).pci
        try:
            note("releasing", written(record))
            self._partitions.destroy(pci, record, lambda step, record: note(step, written(record)))
        except DriverNotLoaded as error:
            if self._journal.generation():
                raise
            _log.warning(
                "partition is gone with the driver", device=held.device, uid=entry.uid, error=str(error)
            )
        self._partitions.turn_off_if_empty(pci)
        return written(record.unmade)

    def unmade(self, held: HeldDevice) -> Record:
        """Its profile and place alone."""
        return written(record_of(held).unmade)

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The GPU instances that no claim accounts for."""
        return _foreign_instances(inventory.gpus, owners)

    def _known(self, device: PlannedDevice, own: HeldDevice | None) -> Record | None:
        """The record of a partition that exists or is being made; None if it has to be looked up."""
        # Admin access only looks at what exists.
        if device.allocated.admin_access:
            return self._made_for_another(device)
        if own is not None and self.is_made(own):
            return own.record
        return self._made_already(device) or (None if own is None else own.record)

    def _made_already(self, device: PlannedDevice) -> Record | None:
        """The record of another claim that shares the partition and has made it or started to."""
        if device.name.shared is None:
            return None
        for held in self._sharing(str(device.name.pci), device.allocated.device):
            if held.record:
                return held.record
        return None

    def _has_another(self, uid: str, held: HeldDevice) -> bool:
        """Whether another claim shares the partition, so that it must stay.

        Only claims with the same device share one; a partition that is not shared has one claim.
        """
        is_shared = unshared_name(held.device) != held.device
        return is_shared and any(True for _ in self._sharing(held.pci, held.device, uid))

    def _sharing(self, pci: str, device: str, without: str = "") -> Iterable[HeldDevice]:
        """The same device in the entries of other claims that have not ended.

        A lost one, and one that a newer version prepared, has no record.
        """
        for entry in self._journal.holders(pci):
            if entry.uid != without and self._journal.standing(entry).has_devices:
                of_claim = (one for one in entry.devices if one.device == device)
                yield from (one for one in of_claim if one.offered is None or self.is_made(one))

    def _made_for_another(self, device: PlannedDevice) -> Record:
        """The record for admin access: that of the claim that holds the partition."""
        wanted = device.allocated.device
        for entry in self._journal.holders(str(device.name.pci)):
            for held in entry.devices:
                if held.device == wanted and not held.admin_access and held.record and self.cuda_uuid(held):
                    return held.record
        raise ClaimBlocked(
            f"{wanted} does not exist, since no claim holds it now, and admin access does not make it",
            "wait until a claim holds it, or ask for another device",
        )

    def _instances_of_others(self, pci: str, uid: str) -> frozenset[int]:
        """The GPU instances on a GPU that were made for other claims, and may exist."""
        records = (
            record_of(held)
            for entry in self._journal.holders(pci)
            if entry.uid != uid and self._journal.standing(entry).is_live
            for held in entry.devices
            if held.pci == pci and held.record and partition_name(held) is not None
        )
        return frozenset(one.gpu_instance_id for one in records if one.gpu_instance_id is not None)


def _foreign_instances(gpus: Iterable[Gpu], owners: Sequence[HeldDevice]) -> tuple[BlockedPlacement, ...]:
    """The GPU instances that belong to no claim; ``owners`` are the devices that claims hold.

    ``owners`` may have a device twice, from before and after the hardware was read: an instance that was made
    or destroyed meanwhile belongs to the claim in one of the two.
    """
    return tuple(
        BlockedPlacement(
            gpu.pci,
            instance.placement,
            "foreign-instance",
            f"GPU instance {instance.id} of GPU {gpu.pci} at {_place(instance.placement)} was not made by "
            "this driver",
        )
        for gpu in gpus
        if gpu.mig
        for instance in gpu.mig.instances
        if not any(_is_of(held, gpu, instance) for held in owners)
    )


def _place(placement: Placement) -> str:
    last = placement.start + placement.size - 1
    return f"memory slice {last}" if placement.size == 1 else f"memory slices {placement.start} to {last}"


def _is_of(held: HeldDevice, gpu: Gpu, instance: GpuInstance) -> bool:
    """Whether the instance was made for this device; a static instance never was."""
    name = partition_name(held)
    if name is None or name.pci != gpu.pci or name.static or not held.record:
        return False
    record = record_of(held)
    # The ids may not be journaled yet, but profile and place always are.
    same_place = (record.profile_id, record.placement) == (instance.profile_id, instance.placement)
    return record.attempted and same_place
