"""Says by the journal whether claims hold the GPUs of a fabric partition with their NVLinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from driver.kinds.fabric import WITH_LINKS
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.fabric.records import FabricRecord
from kubeletplugin.devices.kinds.kind import HeldKinds


class PartitionHolders:
    """The claims of one node, as far as partitions are concerned. ``step(name)`` follows the steps."""

    def __init__(
        self, kinds: HeldKinds, journal: Journal, era: Callable[[], Era], step: Callable[[str], None]
    ) -> None:
        self._kinds = kinds
        self._journal = journal
        self._era = era
        self._step = step

    def need(self, record: FabricRecord, without: str = "") -> bool:
        """Whether a claim other than that of the UID ``without`` needs the partition of a record."""
        era = self._era()
        return record.is_live(era) and any(
            not self.gpus([held]).isdisjoint(record.gpus) and self._kinds.is_live(entry, held, era)
            for pci in record.gpus
            for entry in self._journal.holders(pci)
            if entry.uid != without
            for held in entry.devices
        )

    def outlive_driver(self, devices: Iterable[HeldDevice]) -> bool:
        """Whether a GPU of theirs is not with the NVIDIA driver, so that loading it anew ends nothing."""
        return any(self._kinds.leaves_driver(held) for held in devices)

    def note_release(self, uid: str) -> None:
        """Write down that a claim is not prepared any more, if it was; raises StorageError."""
        entry = self._journal.get(uid)
        if entry is not None and entry.state == "prepared":
            self._journal.put(replace(entry, state="releasing"))
            self._step("releasing")

    def gpus(self, devices: Iterable[HeldDevice]) -> set[str]:
        """The GPUs that devices of a claim come with, NVLinks and all."""
        return gpus_with_links(devices, self._kinds)


def gpus_with_links(devices: Iterable[HeldDevice], kinds: HeldKinds) -> set[str]:
    """The addresses of GPUs whose NVLinks devices come with; those of a kind that is not known may.

    Who looks on by admin access has none.
    """
    return {
        pci
        for held in devices
        if not held.admin_access and (not kinds.knows(held) or kinds.of(held).offered.word in WITH_LINKS)
        for pci in held.gpus
    }
