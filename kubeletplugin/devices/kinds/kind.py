"""The interface by which prepare and unprepare work with a kind of device: one object for each kind.

The other half of a kind, how it is published, is in ``driver.kinds.kind``; both use the same word for the
kind. Sharing is not a kind: it works on top of one.

``NodeKind`` and ``FoundKind`` have what several kinds have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from driver.devices.device import AttributeValue
from driver.devices.node_state import BlockedPlacement
from driver.devices.region import Region
from driver.hardware.boards import Boards
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery, GpuIdentity
from driver.health.verdict import Health
from driver.kinds.kind import DeviceName, OfferedKind
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.cdi.spec import Edits
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, Record
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, HostNow
from kubeletplugin.devices.host.imex import Rack
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.kubelet.wire.controllers import Controllers
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


@dataclass(frozen=True, slots=True)
class NodePorts:
    """What a kind may need of the node."""

    discovery: Discovery
    # Finds the device nodes of GPUs and partitions.
    nodes: GpuNodes
    journal: Journal
    # The rest is for PCI functions that go to virtual machines.
    sysfs_root: Path
    kernel: Kernel
    # Binds functions to other kernel drivers.
    binder: GroupBinder
    # Lists the processes that have a function open.
    users: Users
    # Where the NVIDIA driver is installed.
    driver: InstalledDriver
    # The node's controllers, which have GPUs open as well.
    controllers: Controllers
    # The NVLink fabric of several nodes, as far as this node is in one.
    rack: Rack


class HeldKind(Protocol):
    """A kind of device on the node. Callers hold the locks of the claim and of its GPUs.

    Every method that reads or changes the hardware raises NvmlError; the same call can then be repeated.

    ``condition`` is the reason and the message by which the status of a claim says that a device is ready.
    """

    # The half of the kind that publishes.
    offered: OfferedKind
    condition: tuple[str, str]

    def __init__(self, node: NodePorts) -> None: ...

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

    @staticmethod
    def occupies(held: HeldDevice) -> tuple[Region, ...]:
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

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
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

    @staticmethod
    def cuda_uuid(held: HeldDevice) -> str:
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
    """The kinds that this version can prepare: the registry has them, ``on`` makes those of a node."""

    def __init__(self, kinds: Iterable[type[HeldKind]], unknown: type[HeldKind]) -> None:
        """``unknown`` stands for those of journal entries whose kind only a newer version knows."""
        # The word is in the journal, so it must stay the same from version to version.
        self._by_word = {kind.offered.word: kind for kind in kinds}
        self._unknown = unknown

    @contextmanager
    def added(self, kind: type[HeldKind]) -> Iterator[None]:
        """Within the block there is one more kind, both halves of it, or it replaces that of the same word.

        A node that is made within the block can prepare its devices.
        """
        before, self._by_word = self._by_word, {**self._by_word, kind.offered.word: kind}
        try:
            with KINDS.added(kind.offered):
                yield
        finally:
            self._by_word = before

    def of(self, held: HeldDevice) -> type[HeldKind]:
        """The kind of a held device, by its word; it answers what can be told without the node."""
        return self._by_word.get(held.kind, self._unknown)

    def on(self, node: NodePorts) -> NodeKinds:
        """The kinds as objects that work on this node."""
        kinds = {word: kind(node) for word, kind in self._by_word.items()}
        return NodeKinds(kinds, self._unknown(node), node)


class NodeKinds:
    """The kinds of a node."""

    def __init__(self, by_word: Mapping[str, HeldKind], unknown: HeldKind, node: NodePorts) -> None:
        self._by_word = by_word
        self._unknown = unknown
        self._boards = Boards(node.discovery, node.sysfs_root)
        self._driver = node.driver

    def __iter__(self) -> Iterator[HeldKind]:
        return iter(self._by_word.values())

    def hardware_now(self) -> HardwareNow:
        """What one call of the kubelet reads of the hardware."""
        return HardwareNow(self._boards, HostNow(self._driver))

    def of_name(self, name: DeviceName) -> HeldKind:
        """The kind of a parsed name."""
        return self._by_word[name.kind.word]

    def of(self, held: HeldDevice) -> HeldKind:
        """The kind of a held device, by its word."""
        return self._by_word.get(held.kind, self._unknown)

    def all_intact(self, entry: Entry) -> bool:
        """Whether all of the claim's devices still exist as they were made."""
        return all(self.of(held).intact(held) for held in entry.devices)

    def outlive_driver(self, entry: Entry) -> bool:
        """Whether the entry's devices survive another load of the driver, since nothing was made for them."""
        return not entry.shares and all(
            held.offered is not None and not (kind := self.of(held)).changes(held) and kind.intact(held)
            for held in entry.devices
        )


class NodeKind:
    """What most kinds have in common: their GPUs stay with the NVIDIA driver."""

    condition = ("DeviceReady", "The device can be used.")

    def __init__(self, node: NodePorts) -> None:
        self._node = node

    def board(self, held: HeldDevice, hardware: HardwareNow) -> str | None:
        """The UUID that NVML gives."""
        return hardware.identity(PciAddress.parse(held.pci)).uuid if held.pci else None


class FoundKind(NodeKind):
    """The methods of ``HeldKind`` about making, for a kind that makes nothing."""

    def changes(self, held: HeldDevice) -> bool:
        """Never."""
        return False

    def make(self, entry: Entry, index: int, hardware: HardwareNow, note: Note) -> Record:
        """Nothing to do."""
        return entry.devices[index].record

    @staticmethod
    def is_made(held: HeldDevice) -> bool:
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
