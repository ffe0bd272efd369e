"""Stands for a kind that this version does not know, in journal entries of a newer version.

The devices stay held and their GPUs go to nobody else. Only a version that knows the kind can undo what was
made for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver.devices.device import AttributeValue
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.errors import ClaimBlocked
from driver.hardware.gpu import Inventory
from driver.health.verdict import Health
from driver.kinds.kind import OfferedKind
from driver.kinds.whole import WHOLE
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import NEWER_SCHEMA, SCHEMA, Entry, HeldDevice, Record
from kubeletplugin.devices.kinds.kind import HardwareNow, NodeKind, Note
from kubeletplugin.kubelet.wire.planned import PlannedDevice


class HeldUnknown(NodeKind):
    """Devices of a kind that this version does not know."""

    offered: OfferedKind = WHOLE
    condition = ("", "")

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Refuse."""
        raise _refusal(device.allocated.device, device.name.kind.word)

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """Unknown: the GPU may have left the NVIDIA driver."""
        return None

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
        """All of its GPUs, since the part is not known."""
        return tuple(Region(PciAddress.parse(pci)) for pci in held.gpus)

    def changes(self, held: HeldDevice) -> bool:
        """Possibly, so yes."""
        return True

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Refuse."""
        raise _refusal(entry.devices[index].device, entry.devices[index].kind)

    def intact(self, held: HeldDevice) -> bool:
        """Unknown, so yes: the claim stays as it is."""
        return True

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
        """Possibly, so yes."""
        return True

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Refuse: only the version that knows the kind can do it."""
        raise _refusal(entry.devices[index].device, entry.devices[index].kind)

    def unmade(self, held: HeldDevice) -> Record:
        """The record as it is."""
        return held.record

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """Refuse."""
        raise _refusal(held.device, held.kind)

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
        """Unknown."""
        return ""

    def memory_bytes(self, held: HeldDevice) -> int:
        """Unknown."""
        return 0

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of its GPU, if it has one."""
        return gpus.get(PciAddress.parse(held.pci)) if held.pci else None

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """Nothing."""
        return {}

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Nothing."""
        return {}

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """Nothing."""
        return ()


def refuse_unknown(entry: Entry) -> None:
    """Raise ClaimBlocked if the entry has a device that only a newer version can unprepare."""
    for held in () if entry.state == "lost" else entry.devices:
        if held.offered is None:
            raise _refusal(held.device, held.kind)


def _refusal(device: str, word: str) -> ClaimBlocked:
    if word.startswith(NEWER_SCHEMA):
        return ClaimBlocked(
            f"device {device} was prepared by a newer version of the driver, whose journal has {word}, but "
            f"this version reads {NEWER_SCHEMA}{SCHEMA}",
            "run that version until the claim is released",
        )
    return ClaimBlocked(
        f"device {device} is of kind {word or 'unknown'}, which this version of the driver does not know",
        "run the version of the driver that prepared it until the claim is released",
    )
