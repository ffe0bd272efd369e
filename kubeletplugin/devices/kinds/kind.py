"""What prepare and unprepare need of a kind of device on the node: one object for each kind.

The other half of a kind, how it is offered, is ``driver.kinds.kind``; both use the same word for the kind.
Sharing is not a kind: it works on top of one.

``DriverKind`` and ``FoundKind`` have what several kinds have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from driver.devices.device import AttributeValue
from driver.devices.names import unshared_name
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
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.host.gpu_nodes import HostNow
from kubeletplugin.kubelet.wire.planned import PlannedDevice

Note = Callable[[str, "Record"], None]
"""``note(step, record)`` writes down what is known of a device at a step, between changes of hardware.

It has written it when it returns; raises StorageError.
"""


@dataclass(slots=True)
class Look:
    """The GPUs and the host during one call of the kubelet: NVML is asked at most once for each value."""

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

    Every method that asks the hardware raises NvmlError; the call can then be repeated as it was.

    ``condition`` is how the status of a claim says that a device is ready: a reason and a message.
    """

    offered: OfferedKind
    condition: tuple[str, str]

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """What the device is on this node, before anything is changed.

        ``own`` is the device as an earlier try of the same claim left it in this era, None if there was none.
        Raises ClaimRefused if the hardware cannot be that or no longer has it, ClaimBlocked if it is not
        ready yet.
        """
        ...

    def board(self, held: HeldDevice, look: Look) -> str | None:
        """The UUID of the board that is in the device's place now: its GPU, or the first of its GPUs.

        None if the device lies on no GPU, and if the board is not known now.
        """
        ...

    def occupies(self, held: HeldDevice) -> tuple[Region, ...]:
        """The parts of GPUs that a claim with the device takes from others, as far as they are known."""
        ...

    def changes(self, held: HeldDevice) -> bool:
        """Whether ``make`` leaves something behind on the hardware that ``unmake`` has to take back."""
        ...

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Make the device at this index of the entry usable; returns its record.

        Raises DriverError; what was noted then says how far it came, and ``unmake`` undoes it.
        """
        ...

    def intact(self, held: HeldDevice) -> bool:
        """Whether the device of a prepared claim is still there."""
        ...

    def is_made(self, held: HeldDevice) -> bool:
        """Whether there may be something on the hardware that was made for the claim."""
        ...

    def unmake(self, entry: Entry, index: int, note: Note) -> Record:
        """Take back what was made for the device; returns its record. What is gone already is fine."""
        ...

    def unmade(self, held: HeldDevice) -> Record:
        """The record of the device when nothing is made for it."""
        ...

    def edits(self, held: HeldDevice, look: Look) -> Edits:
        """The CDI edits of the device as it is now; raises NodeIncomplete, ClaimBlocked."""
        ...

    def cuda_uuid(self, held: HeldDevice) -> str:
        """The UUID by which CUDA knows the device, empty if it is not known or CUDA does not know it."""
        ...

    def memory_bytes(self, held: HeldDevice) -> int:
        """The memory of the device, 0 where it is not known."""
        ...

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """The health of the device if its GPUs are as given; None if it is not known."""
        ...

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """What the status of the claim says of the device, besides its UUID and its GPU's address.

        A few short values: the API takes 10 KiB for each device.
        """
        ...

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What containers read of the device (KEP-5304) that the slice does not say, or says differently.

        Called once the device is made. Keys are names of attributes, bare if the domain is the driver's; a
        text has at most 64 bytes. Unknown values are left out.
        """
        ...

    def foreign(self, inventory: Inventory, owners: Sequence[HeldDevice]) -> Iterable[BlockedPlacement]:
        """What somebody else made on the GPUs that keeps devices of this kind from being made.

        ``owners`` are the devices that claims hold.
        """
        ...


class HeldKinds:
    """The kinds that a node can prepare."""

    def __init__(self, kinds: Sequence[HeldKind], unknown: HeldKind) -> None:
        """``unknown`` stands in for a kind of a newer version, whose entries this one meets."""
        self.offered = Kinds([kind.offered for kind in kinds])
        self._by_word = {kind.offered.word: kind for kind in kinds}
        self._unknown = unknown

    def __iter__(self) -> Iterator[HeldKind]:
        return iter(self._by_word.values())

    def parse(self, device: str) -> DeviceName | None:
        """What the name of a device means; None for one that this node does not offer."""
        return self.offered.parse(device)

    def of_name(self, name: DeviceName) -> HeldKind:
        """The kind of a parsed name."""
        return self._by_word[name.kind.word]

    def leaves_driver(self, held: HeldDevice) -> bool:
        """Whether its GPU is not with the NVIDIA driver while the claim has it, as far as is known."""
        return not self.knows(held) or self.of(held).offered.leaves_driver

    def is_live(self, entry: Entry, held: HeldDevice, era: Era) -> bool:
        """Whether what the entry says of this device of it is still true in this era.

        A device that left the NVIDIA driver outlives another load of that driver.
        """
        return standing(entry, era, lambda _: self.leaves_driver(held)).is_live

    def standing(self, entry: Entry | None, era: Era) -> Standing:
        """What a claim's entry means in this era."""
        return standing(entry, era, self.leaves_driver)

    def all_intact(self, entry: Entry) -> bool:
        """Whether the hardware has all of the claim's devices as they were made."""
        return all(self.of(held).intact(held) for held in entry.devices)

    def outlive_driver(self, entry: Entry) -> bool:
        """Whether its devices exist with any load of the driver: nothing was made for the claim.

        A rebuilt entry knows neither shares nor records, so that is certain only for whole GPUs.
        """
        return not entry.shares and all(
            self.knows(held)
            and not (kind := self.of(held)).changes(held)
            and kind.intact(held)
            and not (entry.rebuilt and (kind.offered.by_admin or unshared_name(held.device) != held.device))
            for held in entry.devices
        )

    def knows(self, held: HeldDevice) -> bool:
        """Whether the kind of a held device is one of these, and not one of a newer version."""
        return self.of(held) is not self._unknown

    def of(self, held: HeldDevice) -> HeldKind:
        """The kind of a held device, by its word."""
        return self._by_word.get(held.kind, self._unknown)


class DriverKind:
    """The members of ``HeldKind`` that all kinds share whose GPUs stay with the NVIDIA driver."""

    condition = ("DeviceReady", "The device can be used.")

    def board(self, held: HeldDevice, look: Look) -> str | None:
        """The UUID that NVML gives."""
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
