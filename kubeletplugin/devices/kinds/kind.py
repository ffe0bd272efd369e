"""The interface by which prepare and unprepare work with a kind of device: one object for each kind.

The other half of a kind, how it is published, is in ``driver.kinds.kind``; both use the same word for the
kind. Sharing is not a kind: it works on top of one.

``DriverKind`` and ``FoundKind`` have what several kinds have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from driver.devices.device import AttributeValue
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.hardware.boards import Boards
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import GpuIdentity
from driver.health.verdict import Health
from driver.kinds.kind import DeviceName, Kinds, OfferedKind
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record, Standing, standing
from kubeletplugin.devices.host.gpu_nodes import HostNow
from kubeletplugin.kubelet.wire.planned import PlannedDevice

Note = Callable[[str, Record], None]
"""``note(step, record)`` journals what is known of a device at a step, between changes of the hardware.

The journal is on the disk when it returns; raises StorageError.
"""


@dataclass(slots=True)
class HardwareNow:
    """The GPUs and the host as one call of the kubelet reads them.

    NVML is called at most once for each value.
    """

    boards: Boards
    host: HostNow
    _identities: dict[PciAddress, GpuIdentity] = field(default_factory=dict)

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """UUID and minor of a GPU as they are now; raises NvmlError."""
        found = self._identities.get(pci)
        if found is None:
            found = self._identities[pci] = self.boards.identity(pci)
        return found


class HeldKind(Protocol):
    """A kind of device on the node. Callers hold the locks of the claim and of its GPUs.

    Every method that reads or changes the hardware raises NvmlError; the same call can then be repeated.

    ``condition`` is the reason and the message by which the status of a claim says that a device is ready.
    """

    # The half of the kind that publishes.
    offered: OfferedKind
    condition: tuple[str, str]

    def locate(self, device: PlannedDevice, own: HeldDevice | None, hardware: HardwareNow) -> HeldDevice:
        """Find the device on this node, before anything is changed.

        ``own`` is the device as an earlier try of the same claim left it, if it may still exist. Raises
        ClaimRefused if the hardware cannot have the device or no longer has it, ClaimBlocked if it is not
        ready yet.
        """
        ...

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """The UUID of the GPU that is at the device's address now; of several GPUs, the first.

        None if the device is on no GPU, or if the UUID cannot be read now.
        """
        ...

    def occupies(self, held: HeldDevice) -> tuple[Region, ...]:
        """The parts of GPUs that nobody else can have while a claim has the device, as far as known."""
        ...

    def changes(self, held: HeldDevice) -> bool:
        """Whether ``make`` changes the hardware so that ``unmake`` has to undo it."""
        ...

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Make the device at this index of the entry usable; returns its record.

        Raises DriverError. The last noted record then says how far it came, and ``unmake`` undoes that.
        """
        ...

    def intact(self, held: HeldDevice) -> bool:
        """Whether the device of a prepared claim is still there."""
        ...

    def is_made(self, held: HeldDevice) -> bool:
        """Whether there may be something on the hardware that was made for the claim."""
        ...

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Undo what was made for the device; returns its record. It is no error if it is gone already."""
        ...

    def unmade(self, held: HeldDevice) -> Record:
        """The record of the device when nothing is made for it."""
        ...

    def edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The CDI edits of the device as it is now; raises NodeIncomplete, ClaimBlocked."""
        ...

    def cuda_uuid(self, held: HeldDevice) -> str:
        """The device's UUID for CUDA; empty if it is unknown, or if CUDA cannot use the device."""
        ...

    def memory_bytes(self, held: HeldDevice) -> int:
        """The memory of the device, 0 if unknown."""
        ...

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of the device, given that of the GPUs; None if unknown."""
        ...

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """What the status of the claim says about the device, besides its UUID and its GPU's address.

        Keep it to a few short values: the API takes at most 10 KiB for each device.
        """
        ...

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Attributes for the file that containers read (KEP-5304), where the slice lacks them or differs.

        Called after the device is made. Keys are names of attributes, without a domain if it is the driver's;
        a text has at most 64 bytes. Unknown values are left out.
        """
        ...

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """The places where something that no claim made keeps devices of this kind from being made.

        ``owners`` are the devices that claims hold.
        """
        ...


class HeldKinds:
    """The kinds that a node can prepare."""

    def __init__(self, kinds: Sequence[HeldKind], unknown: HeldKind) -> None:
        """``unknown`` is used for journal entries whose kind only a newer version knows."""
        self.offered = Kinds([kind.offered for kind in kinds])
        # The word is in the journal, so it must stay the same from version to version.
        self._by_word = {kind.offered.word: kind for kind in kinds}
        self._unknown = unknown

    def __iter__(self) -> Iterator[HeldKind]:
        return iter(self._by_word.values())

    def parse(self, device: str) -> DeviceName | None:
        """The parsed name of a device; None if this node does not offer it."""
        return self.offered.parse(device)

    def of_name(self, name: DeviceName) -> HeldKind:
        """The kind of a parsed name."""
        return self._by_word[name.kind.word]

    def leaves_driver(self, held: HeldDevice) -> bool:
        """Whether its GPU leaves the NVIDIA driver while the claim has it; true for an unknown kind."""
        return not self.knows(held) or self.of(held).offered.leaves_driver

    def is_live(self, entry: Entry, held: HeldDevice, generation: str) -> bool:
        """Whether the entry's record of this device is still true in this load of the driver.

        A device that left the NVIDIA driver is not affected when that driver is loaded again.
        """
        return standing(entry, generation, lambda _: self.leaves_driver(held)).is_live

    def standing(self, entry: Entry | None, generation: str) -> Standing:
        """Whether a claim's entry is still valid; see ``journal.entry.standing``."""
        return standing(entry, generation, self.leaves_driver)

    def all_intact(self, entry: Entry) -> bool:
        """Whether all of the claim's devices still exist as they were made."""
        return all(self.of(held).intact(held) for held in entry.devices)

    def outlive_driver(self, entry: Entry) -> bool:
        """Whether the entry's devices survive another load of the driver, since nothing was made for them."""
        return not entry.shares and all(
            self.knows(held) and not (kind := self.of(held)).changes(held) and kind.intact(held)
            for held in entry.devices
        )

    def knows(self, held: HeldDevice) -> bool:
        """Whether this version knows the kind of a held device."""
        return self.of(held) is not self._unknown

    def of(self, held: HeldDevice) -> HeldKind:
        """The kind of a held device, by its word."""
        return self._by_word.get(held.kind, self._unknown)


class DriverKind:
    """What all kinds have in common whose GPUs stay with the NVIDIA driver."""

    condition = ("DeviceReady", "The device can be used.")

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """The UUID that NVML gives."""
        return hardware.identity(PciAddress.parse(held.pci)).uuid if held.pci else None


class FoundKind(DriverKind):
    """The methods of ``HeldKind`` about making, for a kind that makes nothing."""

    def changes(self, held: HeldDevice) -> bool:
        """Never."""
        return False

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def is_made(self, held: HeldDevice) -> bool:
        """Never."""
        return False

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    def unmade(self, held: HeldDevice) -> Record:
        """The record as it is."""
        return held.record

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """Nothing: if nothing is made, the slice has every attribute."""
        return {}

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """Nothing: if nothing is made, nothing can be in the way."""
        return ()
