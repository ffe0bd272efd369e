"""What kinds have in common whose devices are there already: nothing is made for a claim, or taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubeletplugin.journal.entry import Entry, HeldDevice, Record

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.node_state import BlockedPlacement
    from driver.hardware.gpu import Inventory
    from kubeletplugin.kinds.kind import Look, Note


class FoundKind:
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
