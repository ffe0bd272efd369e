"""Partitions that an admin made, on the node: they are found, and never made or destroyed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from driver.kinds.kind import OfferedKind
from driver.kinds.partition.kind import STATIC
from driver.kinds.partition.names import parse_partition_name
from kubeletplugin.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.kinds.partition.held import HeldPartition
from kubeletplugin.kinds.partition.record import written

if TYPE_CHECKING:
    from driver.devices.node_state import BlockedPlacement
    from driver.hardware.gpu import Inventory
    from kubeletplugin.kinds.kind import Look, Note
    from kubeletplugin.wire.planned import PlannedDevice


class HeldStatic(HeldPartition):
    """Static partitions."""

    offered: OfferedKind = STATIC

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """The instances that lie there now; raises ClaimRefused where there are none (any more)."""
        name = parse_partition_name(device.name.unshared)
        record = None if name is None else self._partitions.locate(name)
        uuid = look.identity(name.pci).uuid if name else ""
        return HeldDevice.of(device, uuid, written(record))

    def changes(self, held: HeldDevice) -> bool:
        """Nothing."""
        return False

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def is_made(self, held: HeldDevice) -> bool:
        """Not for a claim."""
        return False

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def unmade(self, held: HeldDevice) -> Record:
        """What it is."""
        return held.record

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """Nothing: whatever an admin makes is what is published."""
        return ()
