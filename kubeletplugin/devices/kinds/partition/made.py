"""Partitions that are made for claims and destroyed with them, each step in the claim's journal entry.

A step is written down before the hardware is touched and after. So whoever comes next, after a crash
or a failure, knows what is the claim's and what is somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.devices.names import unshared_name
from driver.errors import ClaimBlocked
from driver.kinds.kind import OfferedKind
from driver.kinds.partition.kind import MADE
from driver.nvml.api import DriverNotLoaded, GpuLost, InstanceNotFound, NotFound
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record, standing
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.kinds.partition.foreign import foreign_instances
from kubeletplugin.devices.kinds.partition.held import HeldPartition
from kubeletplugin.devices.kinds.partition.record import (
    PartitionRecord,
    name_of,
    partition_name,
    record_of,
    written,
)

if TYPE_CHECKING:
    from driver.devices.node_state import BlockedPlacement
    from driver.hardware.gpu import Inventory
    from kubeletplugin.devices.host.gpu_nodes import GpuNodes
    from kubeletplugin.devices.kinds.kind import Look, Note
    from kubeletplugin.devices.kinds.partition.making import Partitions
    from kubeletplugin.kubelet.wire.planned import PlannedDevice

_log = get_logger("partitions")


class HeldMade(HeldPartition):
    """The partitions that claims have made."""

    offered: OfferedKind = MADE
    condition = ("PartitionMade", "The partition exists.")

    def __init__(
        self, partitions: Partitions, nodes: GpuNodes, journal: Journal, era: Callable[[], Era]
    ) -> None:
        super().__init__(partitions, nodes)
        self._journal = journal
        self._era = era

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """Its profile and place; what an earlier try has made, or another claim that shares it, is kept.

        Raises ClaimRefused for a partition that the GPU cannot have, ClaimBlocked for admin access to one
        that nobody holds.
        """
        name = name_of(device.name.device)
        found = self._known(device, own) or written(self._partitions.locate(name))
        return HeldDevice.of(device, look.identity(name.pci).uuid, found)

    def changes(self, held: HeldDevice) -> bool:
        """Whether the claim has the partition made; who looks on by admin access makes none."""
        return not held.admin_access

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Make the partition, unless another claim that shares it has, or another request of the claim."""
        held = entry.devices[index]
        record = record_of(held)
        if record is None or not self.changes(held):
            return held.record
        twin = next((one for one in entry.devices[:index] if one.device == held.device), None)
        if twin is not None:
            return twin.record
        pci = name_of(held.device).pci
        if self._has_another(entry.uid, held) and self._partitions.exists(pci, record):
            return held.record
        others = self._instances_of_others(held.pci, entry.uid)
        made = self._partitions.make(pci, record, others, lambda step, record: note(step, written(record)))
        return written(made)

    def is_made(self, held: HeldDevice) -> bool:
        """Whether its making was begun; of a rebuilt entry nobody knows, so it was."""
        record = record_of(held)
        return not held.admin_access and (record is None or record.attempted)

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Destroy it, unless another claim shares it and so keeps it; then turn MIG mode off after the last.

        Gone already is fine: nothing outlives the driver, or a GPU that was lost.
        """
        held = entry.devices[index]
        record = record_of(held)
        if self._has_another(entry.uid, held):
            return self.unmade(held)
        pci = name_of(held.device).pci
        try:
            record = self._begun(held)
            note("releasing", written(record))
            self._partitions.destroy(pci, record, lambda step, record: note(step, written(record)))
        except InstanceNotFound:
            raise
        except (DriverNotLoaded, GpuLost, NotFound) as error:
            _log.warning("partition gone with its GPU", device=held.device, uid=entry.uid, error=str(error))
        self._partitions.rest(pci)
        return written(record.unmade if record else None)

    def unmade(self, held: HeldDevice) -> Record:
        """Its profile and place alone."""
        record = record_of(held)
        return written(None if record is None else record.unmade)

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The GPU instances that no claim accounts for."""
        return foreign_instances(inventory.gpus, owners)

    def _known(self, device: PlannedDevice, own: HeldDevice | None) -> Record | None:
        """The record of a partition that is there, or is being made; None where it has to be looked up."""
        if device.allocated.admin_access:
            return self._made_for_another(device)
        if own is not None and self.is_made(own):
            return written(self._begun(own))
        return self._made_already(device) or (own.record if own is not None and own.record else None)

    def _begun(self, held: HeldDevice) -> PartitionRecord:
        """The record of a partition whose making was begun; looked up for an entry that was rebuilt.

        A CDI spec, from which it was rebuilt, is written only after the partition was made.
        """
        return record_of(held) or replace(self._partitions.locate(name_of(held.device)), attempted=True)

    def _made_already(self, device: PlannedDevice) -> Record | None:
        """The partition as another claim, which shares it, has made it or has begun to."""
        if device.name.shared is None:
            return None
        for held in self._sharing(str(device.name.pci), device.allocated.device):
            return written(self._begun(held))
        return None

    def _has_another(self, uid: str, held: HeldDevice) -> bool:
        """Whether another claim shares the partition as it is made, and so keeps it.

        Only the same device in several hands is shared; else a partition has one claim.
        """
        is_shared = unshared_name(held.device) != held.device
        return is_shared and any(True for _ in self._sharing(held.pci, held.device, uid))

    def _sharing(self, pci: str, device: str, without: str = "") -> Iterable[HeldDevice]:
        """The same device in the hands of claims of this era that have not ended."""
        era = self._era()
        for entry in self._journal.holders(pci):
            if entry.uid != without and standing(entry, era).has_devices:
                yield from (one for one in entry.devices if one.device == device and self.is_made(one))

    def _made_for_another(self, device: PlannedDevice) -> Record:
        """The partition that the claim looks on at: it exists as long as another claim holds it."""
        wanted = device.allocated.device
        for entry in self._journal.holders(str(device.name.pci)):
            for held in entry.devices:
                if held.device == wanted and not held.admin_access and self.cuda_uuid(held):
                    return held.record
        raise ClaimBlocked(
            f"no claim holds {wanted} now, so the partition does not exist, and admin access makes none",
            "it exists while a claim holds it; ask for another device",
        )

    def _instances_of_others(self, pci: str, uid: str) -> frozenset[int]:
        """The GPU instances on a GPU that were made for other claims in this era."""
        era = self._era()
        records = (
            record_of(held)
            for entry in self._journal.holders(pci)
            if entry.uid != uid and standing(entry, era).is_live
            for held in entry.devices
            if held.pci == pci and partition_name(held) is not None
        )
        return frozenset(
            one.gpu_instance_id for one in records if one is not None and one.gpu_instance_id is not None
        )
