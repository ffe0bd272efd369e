"""The seam on the node: what prepare and unprepare do for a kind of device, one object a kind.

The other half of a kind, how it is offered, is ``driver.kinds.kind``; both say the same word. Sharing is no
kind: it lies on top of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from driver.devices.names import unshared_name
from driver.kinds.kind import Kinds
from kubeletplugin.claims.journal.entry import standing
from kubeletplugin.devices.host.gpu_nodes import FolderStamps

if TYPE_CHECKING:
    from driver.devices.device import AttributeValue
    from driver.devices.node_state import BlockedPlacement
    from driver.devices.region import Region
    from driver.hardware.boards import Boards
    from driver.hardware.gpu import Inventory
    from driver.hardware.inventory import GpuIdentity
    from driver.health.verdict import Health
    from driver.kinds.kind import DeviceName, OfferedKind
    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.claims.cdi.spec import Edits
    from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record, Standing
    from kubeletplugin.claims.journal.identity import Era
    from kubeletplugin.kubelet.wire.planned import PlannedDevice

Note = Callable[[str, "Record"], None]
"""``note(step, record)`` writes down what is known of a device at a step, between changes of hardware.

It has written it when it returns; raises StorageError.
"""


class Look:
    """One look at the GPUs, for one call of the kubelet: what was asked once is not asked again."""

    def __init__(self, boards: Boards) -> None:
        self.stamps = FolderStamps()
        self._boards = boards
        self._identities: dict[PciAddress, GpuIdentity] = {}

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """UUID and minor of a GPU as they are now; raises NvmlError."""
        found = self._identities.get(pci)
        if found is None:
            found = self._identities[pci] = self._boards.identity(pci)
        return found


class HeldKind(Protocol):
    """A kind of device on the node. Callers hold the locks of the claim and of its GPUs.

    Everything that asks the hardware raises NvmlError; then it can be repeated as it was.

    ``condition`` is how the status of a claim says that a device is ready: a reason and a message.
    """

    offered: OfferedKind
    condition: tuple[str, str]

    def locate(self, device: PlannedDevice, own: HeldDevice | None, look: Look) -> HeldDevice:
        """What the device is on this node, before anything is changed.

        ``own`` is the device as an earlier try of the same claim left it in this era, None where there was
        none. Raises ClaimRefused for what the hardware cannot be or has no more, ClaimBlocked for what it
        is not yet.
        """
        ...

    def board(self, held: HeldDevice, look: Look) -> str | None:
        """The UUID of the board that sits in its place now, of its GPU or the first of them.

        None where it lies on no GPU, and where nobody can tell now.
        """
        ...

    def occupies(self, held: HeldDevice) -> tuple[Region, ...]:
        """What of GPUs a claim with the device takes from others, as far as that is known."""
        ...

    def changes(self, held: HeldDevice) -> bool:
        """Whether ``make`` leaves something behind on the hardware that ``unmake`` has to take back."""
        ...

    def make(self, entry: Entry, index: int, look: Look, note: Note) -> Record:
        """Have the device at this place of the entry usable; its record then.

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
        """Take back what was made for the device; its record then. What is gone already is fine."""
        ...

    def unmade(self, held: HeldDevice) -> Record:
        """The record of the device when nothing is made for it."""
        ...

    def edits(self, held: HeldDevice, look: Look) -> Edits:
        """What a container gets with the device, fresh; raises NodeIncomplete, ClaimBlocked."""
        ...

    def cuda_uuid(self, held: HeldDevice) -> str:
        """What CUDA knows the device by, empty where that is not known or CUDA does not know it."""
        ...

    def memory_bytes(self, held: HeldDevice) -> int:
        """The memory of the device, 0 where it is not known."""
        ...

    def health(self, held: HeldDevice, gpus: Mapping[PciAddress, Health]) -> Health | None:
        """How the device is, where its GPUs are so; None where that is not known."""
        ...

    def status(self, held: HeldDevice) -> Mapping[str, Any]:
        """What the status of the claim tells of the device, besides its UUID and its GPU's address.

        A few short values: the API takes 10 KiB for each device.
        """
        ...

    def metadata(self, held: HeldDevice) -> Mapping[str, AttributeValue]:
        """What containers read of the device (KEP-5304) that no slice tells, or that one tells otherwise.

        Asked once the device is made. Keys are names of attributes, bare where the domain is the driver's; a
        text has at most 64 bytes. What is unknown is left out, and empty is nothing.
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
        """Whether its GPU is not with the NVIDIA driver while the claim has it, as far as anybody knows."""
        return not self.knows(held) or self.of(held).offered.leaves_driver

    def is_live(self, entry: Entry, held: HeldDevice, era: Era) -> bool:
        """Whether what the entry says of this device of it means anything in this era.

        What left the NVIDIA driver outlives that driver's being loaded anew.
        """
        return standing(entry, era, lambda _: self.leaves_driver(held)).is_live

    def standing(self, entry: Entry | None, era: Era) -> Standing:
        """What a claim's entry means in this era."""
        return standing(entry, era, self.leaves_driver)

    def all_intact(self, entry: Entry) -> bool:
        """Whether the hardware has all of the claim's devices as they were made."""
        return all(self.of(held).intact(held) for held in entry.devices)

    def outlive_driver(self, entry: Entry) -> bool:
        """Whether its devices are there with any load of the driver: nothing was made for the claim.

        Of a rebuilt entry, which knows neither shares nor records, that can be said of whole GPUs alone.
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
