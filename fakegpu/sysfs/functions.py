"""The PCI functions of a machine and their fixed properties, including the virtual functions it may get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.spec import IommuSpec, MachineSpec, Slot, SriovSpec

# PCI vendor ids, and class codes: a 3D controller, and a PCI-to-PCI bridge.
NVIDIA, _INTEL = 0x10DE, 0x8086
GPU_CLASS, BRIDGE_CLASS = 0x030200, 0x060400

# The other functions of a board: device id and class code.
_BESIDE = {"audio": (0x22F7, 0x040300), "usb": (0x1AD8, 0x0C0330), "ucsi": (0x1AD9, 0x0C8000)}
_ROOT_PORT_ID = 0x352A
_FIRST_GROUP = 10
# NVIDIA's virtual functions begin at .4 of their board.
_FIRST_VIRTUAL = 4
_REGISTERS_BYTES, _DOORBELLS_BYTES = 16 << 20, 32 << 20
_SMALL_BAR_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Function:
    """One PCI function. ``folder`` is its path below the root of sysfs, ``group`` its IOMMU group.

    ``regions`` are the numbers and sizes in bytes of its memory regions. ``physical`` is the function that a
    virtual function belongs to, ``number`` its number there. ``cpus`` are the CPUs near it, None if unknown.
    """

    pci: PciAddress
    vendor_id: int
    device_id: int
    class_code: int
    folder: str
    group: int
    numa_node: int
    regions: tuple[tuple[int, int], ...] = ()
    physical: PciAddress | None = None
    number: int = 0
    cpus: str | None = None

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge, which no vfio driver takes."""
        return self.class_code == BRIDGE_CLASS

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, physical or virtual."""
        return self.class_code == GPU_CLASS


def functions_of(spec: MachineSpec) -> Mapping[PciAddress, Function]:
    """All functions that the machine has or may have, by address."""
    product = spec.product
    return _functions(spec.slots, product.device_id, product.memory_bytes or 0, product.sriov, spec.iommu)


@lru_cache(maxsize=64)
def _functions(
    slots: tuple[Slot, ...], device_id: int, memory_bytes: int, sriov: SriovSpec | None, iommu: IommuSpec
) -> Mapping[PciAddress, Function]:
    found: dict[PciAddress, Function] = {}
    taken = {slot.iommu_group for slot in slots} - {None}
    free = (number for number in count(_FIRST_GROUP) if number not in taken)
    above = _folders_above(slots)
    for slot in slots:
        named = slot.iommu_group if iommu.present else None
        number = next(free) if named is None else named
        for one in _board(
            *(slot, above[slot.pci], number, device_id, memory_bytes, free), apart=not iommu.present
        ):
            found[one.pci] = one
    for slot in slots:
        gpu = found[slot.pci]
        for index in range(sriov.total if sriov else 0):
            pci = _virtual_address(slot.pci, index)
            folder = f"{gpu.folder.rpartition('/')[0]}/{pci}"
            regions = ((0, _REGISTERS_BYTES), (1, _power_of_two(memory_bytes) // 16))
            found[pci] = Function(
                *(pci, NVIDIA, sriov.device_id if sriov else 0, GPU_CLASS, folder, next(free)),
                *(gpu.numa_node, regions, slot.pci, index, slot.cpus),
            )
    return found


def _folders_above(slots: tuple[Slot, ...]) -> Mapping[PciAddress, str]:
    """For each GPU the folder of sysfs with the port that leads to it: the root complex, or its last switch.

    Below the root there is a root port for each topmost switch, then upstream and downstream ports in turn.
    They are folders without files of their own: code that looks for switches reads the paths of links only.
    """
    upstream: dict[str, PciAddress] = {}
    found = {}
    for slot in slots:
        folder = f"devices/{slot.pcie_root}"
        for depth, switch in enumerate(slot.switches):
            bus = (slot.pci.bus - 2 * (len(slot.switches) - depth)) % 256
            port = upstream.setdefault(switch, PciAddress(slot.pci.domain, bus, 0, 0))
            over = slot.pcie_root.removeprefix("pci")
            if depth:
                switch_above = upstream[slot.switches[depth - 1]]
                over = f"{switch_above.domain:04x}:{(switch_above.bus + 1) % 256:02x}"
            folder += f"/{over}:{port.bus % 32:02x}.1/{port}"
        found[slot.pci] = folder
    return found


def _board(
    slot: Slot, root: str, group: int, device_id: int, memory_bytes: int, free: Iterator[int], *, apart: bool
) -> Iterator[Function]:
    """The bridge above a slot, if it has one, its GPU, and the other functions of the board, below ``root``.

    ``apart``: each function has a group of its own, as vfio makes them up without an IOMMU.
    """
    # sysfs shows -1 if the firmware reports no NUMA node.
    numa = -1 if slot.numa_node is None else slot.numa_node
    above = root
    # The bus of the root has no bridge above its functions; GPUs of virtual machines are often there.
    if slot.pcie_root != f"pci{slot.pci.domain:04x}:{slot.pci.bus:02x}":
        bridge = PciAddress.parse(f"{slot.pcie_root.removeprefix('pci')}:{slot.minor % 32:02x}.0")
        above += f"/{bridge}"
        theirs = group if slot.bridge_in_group and not apart else next(free)
        yield Function(bridge, _INTEL, _ROOT_PORT_ID, BRIDGE_CLASS, above, theirs, numa)
    regions = (
        (0, _REGISTERS_BYTES),
        *(((1, _power_of_two(memory_bytes)),) if memory_bytes else ()),
        (3, _DOORBELLS_BYTES),
    )
    yield Function(
        slot.pci, NVIDIA, device_id, GPU_CLASS, f"{above}/{slot.pci}", group, numa, regions, cpus=slot.cpus
    )
    for number, name in enumerate(slot.beside, 1):
        pci = PciAddress(slot.pci.domain, slot.pci.bus, slot.pci.device, number)
        ours = next(free) if apart else group
        kind = _BESIDE[name]
        yield Function(pci, NVIDIA, *kind, f"{above}/{pci}", ours, numa, ((0, _SMALL_BAR_BYTES),))


def _virtual_address(pci: PciAddress, index: int) -> PciAddress:
    device, function = divmod(_FIRST_VIRTUAL + index, 8)
    return PciAddress(pci.domain, pci.bus, pci.device + device, function)


def _power_of_two(memory_bytes: int) -> int:
    """The size of a region that shows so much memory: PCI regions are powers of two."""
    return 1 << max(0, memory_bytes - 1).bit_length()
