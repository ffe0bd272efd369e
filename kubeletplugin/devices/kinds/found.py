"""What kinds have in common whose GPUs stay with the NVIDIA driver, and of these those that make nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.node_state import BlockedPlacement
    from driver.hardware.gpu import Inventory
    from kubeletplugin.devices.kinds.kind import Look, Note


class DriverKind:
    """The members of ``HeldKind`` that are the same for all devices on GPUs of NVML's, and on none."""

    condition = ("DeviceReady", "The device can be used.")

    def board(self, held: HeldDevice, look: Look) -> str | None:
        """As NVML tells it."""
        return look.identity(PciAddress.parse(held.pci)).uuid if held.pci else None


class FoundKind(DriverKind):
    """The half of ``HeldKind`` that is about making, for a kind that makes nothing."""

    def changes(self, held: HeldDevice) -> bool:
        """Nothing."""
        return False

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def is_made(self, held: HeldDevice) -> bool:
        """Never."""
        return False

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def unmade(self, held: HeldDevice) -> Record:
        """What it is."""
        return held.record

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Nothing: where nothing is made, the slice tells all."""
        return {}

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """Nothing: where nothing is made, nothing is in the way."""
        return ()
