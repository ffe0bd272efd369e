"""Partitions that an admin made, on the node: they are found, and never made or destroyed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.kinds.kind import OfferedKind
from driver.kinds.partition.kind import STATIC
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.devices.kinds.found import FoundKind
from kubeletplugin.devices.kinds.partition.held import HeldPartition
from kubeletplugin.devices.kinds.partition.record import name_of, written

if TYPE_CHECKING:
    from kubeletplugin.devices.kinds.kind import Look
    from kubeletplugin.kubelet.wire.planned import PlannedDevice


class HeldStatic(FoundKind, HeldPartition):
    """Static partitions."""

    offered: OfferedKind = STATIC
    condition = ("PartitionReady", "The partition can be used.")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """The instances that lie there now; raises ClaimRefused where there are none (any more)."""
        name = name_of(device.name.device)
        record = self._partitions.locate(name)
        return HeldDevice.of(device, look.identity(name.pci).uuid, written(record))
