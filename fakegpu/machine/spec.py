"""Reads machine files, YAML that describes fake machines, and reports every error in them with its path."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from driver.errors import ConfigError
from driver.nvml.api import AddressingMode, FabricInfo, NvLinkEnd, Virtualization
from driver.nvml.pci_address import PciAddress
from driver.nvml.products import ARCHITECTURES, BRANDS
from fakegpu.machine.fields import Fields
from fakegpu.machine.mig_profiles import MigCatalogue, known_catalogues, load_catalogue, read_catalogue
from fakegpu.machine.vgpu_types import VgpuHost, read_vgpu_host

_OTHER_FUNCTIONS = ("audio", "usb", "ucsi")
"""The functions that a board may have besides the GPU, as a machine file names them."""

MACHINES = Path(__file__).parents[1] / "machines"
"""The machine files that ship with the driver, ``<name>.yaml``."""

INSTANCE_TYPES = Path(__file__).parents[1] / "instance_types"
"""The machine files of instance types of clouds, ``<type>.yaml``."""

PRODUCTS = Path(__file__).parents[1] / "products"
"""The products that machine files name, ``<name>.yaml``."""

TopologyLevel = Literal["internal", "single", "multiple", "hostbridge", "node", "system"]
"""nvmlGpuTopologyLevel_t: how far the path between two GPUs goes over PCIe."""

_GPU_UUID = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_UUID_NAMESPACE = uuid.UUID("8d2f2f0e-3f3b-5c0e-9d53-6f0c3c1a7e11")


@dataclass(frozen=True, slots=True)
class IommuSpec:
    """What the kernel supports for virtual machines.

    ``present`` is whether there is an IOMMU. ``iommufd`` is whether the kernel has /dev/iommu and a device
    node for each function. ``unsafe_noiommu`` is vfio's parameter enable_unsafe_noiommu_mode: without an
    IOMMU vfio then makes up groups. ``variant_drivers`` are vfio drivers for some device ids, such as
    nvgrace-gpu-vfio-pci.
    """

    present: bool = True
    iommufd: bool = True
    unsafe_noiommu: bool = False
    variant_drivers: tuple[tuple[str, tuple[int, ...]], ...] = ()


_USUAL_IOMMU = IommuSpec()
"""The IOMMU of a machine whose file has no field ``iommu``."""


@dataclass(frozen=True, slots=True)
class SriovSpec:
    """The virtual functions that each GPU can have: how many, and their PCI device id."""

    total: int
    device_id: int


def _iommu_spec(fields: Fields) -> IommuSpec:
    """The field ``iommu`` of a machine file."""
    spec = IommuSpec(
        present=fields.flag("present", default=True),
        iommufd=fields.flag("iommufd", default=True),
        unsafe_noiommu=fields.flag("unsafe_noiommu", default=False),
        variant_drivers=tuple(
            (one.text("name", r"[a-z0-9-]+", "name in lower case"), one.numbers("device_ids"))
            for one in (fields.items("variant_drivers") if "variant_drivers" in fields else ())
        ),
    )
    fields.refuse_unknown()
    return spec


def _sriov_spec(fields: Fields) -> SriovSpec:
    """The field ``product.sriov`` of a machine file."""
    spec = SriovSpec(fields.number("total", minimum=1), fields.number("device_id", minimum=1))
    fields.refuse_unknown()
    return spec


@dataclass(frozen=True, slots=True)
class Product:
    """What all GPUs of a machine have in common. NVML answers NOT_SUPPORTED for values that are None.

    ``brand`` and ``architecture`` are None if NVML answers with a number that no word stands for.
    ``device_id`` is the PCI device id; ``mig`` are the MIG profiles of the GPU, ``vgpu`` the vGPUs that a
    host can make of it. ``license`` is the product that a vGPU guest needs a license for, None if there is
    no licensing; ``licensed`` is whether it has one at first. ``reserved_bytes`` is the memory that the
    NVIDIA driver keeps for itself.
    """

    name: str
    device_id: int
    brand: str | None
    architecture: str | None
    compute_capability: tuple[int, int]
    memory_bytes: int | None
    reserved_bytes: int
    addressing_mode: AddressingMode | None
    mig: MigCatalogue | None
    virtualization: Virtualization
    license: str | None = None
    licensed: bool = True
    sriov: SriovSpec | None = None
    vgpu: VgpuHost | None = None

    @property
    def mig_needs_reset(self) -> bool:
        """Whether MIG mode changes only with a reset; then it also lasts over reboots."""
        return self.architecture == "Ampere"


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of the machine, with its GPU.

    ``switches`` are the PCIe switches between root and GPU, from the root down. ``numa_node`` and ``cpus``,
    the CPUs near the GPU, are None if the firmware reports none. ``links`` are the NVLinks. ``mig_enabled``
    and ``virtual_functions`` are MIG mode and the number of virtual functions at first. ``beside`` are the
    other functions of the board, from .1 on. Slots with the same ``iommu_group`` share it; None is a group of
    its own. With ``bridge_in_group`` the bridge above the GPU is in its group, too. ``module_id`` is the
    place on a baseboard. ``uuid`` is that of the first board here, None for one that follows from the name.
    """

    pci: PciAddress
    minor: int
    numa_node: int | None
    pcie_root: str
    switches: tuple[str, ...]
    links: tuple[NvLinkEnd, ...] = ()
    mig_enabled: bool = False
    module_id: int | None = None
    beside: tuple[str, ...] = ()
    iommu_group: int | None = None
    bridge_in_group: bool = False
    virtual_functions: int = 0
    cpus: str | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class FabricSpec:
    """The fabric partitions of a machine, each a set of module ids; their own ids count from 0.

    ``shared``: the fabric manager is started in shared NVSwitch mode at first. ``tells_identities``: it
    reports UUID and address of each GPU that the NVIDIA driver is bound to.
    """

    partitions: tuple[frozenset[int], ...]
    shared: bool
    tells_identities: bool


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine as it was built, slots sorted by PCI address; MachineState has what changes later.

    ``fabric`` is the place in a multi-node NVLink fabric. ``fabric_manager`` are the fabric partitions of the
    shared NVSwitch mode, None without that mode. ``p2p`` is whether GPUs can read each other's memory.
    ``links_end_with_mig``: the NVLinks of a GPU in MIG mode are down at both ends.
    """

    name: str
    driver_version: str
    cuda_driver_version: str
    product: Product
    slots: tuple[Slot, ...]
    fabric: FabricInfo | None
    p2p: bool
    links_end_with_mig: bool = False
    fabric_manager: FabricSpec | None = None
    description: str = ""
    iommu: IommuSpec = _USUAL_IOMMU

    @property
    def is_in_rack(self) -> bool:
        """Whether its NVLink fabric has other machines: a machine alone has a cluster UUID of zeros."""
        return self.fabric is not None and uuid.UUID(self.fabric.cluster_uuid).int != 0

    def slot(self, pci: PciAddress) -> Slot:
        """The slot at an address; raises KeyError if the machine has none there."""
        for slot in self.slots:
            if slot.pci == pci:
                return slot
        raise KeyError(str(pci))

    def board_uuid(self, pci: PciAddress, board: int) -> str:
        """The UUID of the n-th board in a slot: the same on every run."""
        if board == 0 and (named := self.slot(pci).uuid) is not None:
            return named
        return f"GPU-{uuid.uuid5(_UUID_NAMESPACE, f'{self.name} {pci} {board}')}"


def known_machines() -> tuple[str, ...]:
    """The names of the machines that ship with the driver, sorted."""
    return _names(MACHINES)


def instance_types() -> tuple[str, ...]:
    """The names of the instance types, sorted."""
    return _names(INSTANCE_TYPES)


def known_products() -> tuple[str, ...]:
    """The names of the products that several machine files have, sorted."""
    return _names(PRODUCTS)


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def shipped_file(machine: str) -> Path | None:
    """The file of a shipped machine or an instance type; None if neither has the name."""
    folders = {MACHINES: known_machines(), INSTANCE_TYPES: instance_types()}
    return next((folder / f"{machine}.yaml" for folder, names in folders.items() if machine in names), None)


def load_machine(machine: str) -> MachineSpec:
    """Read a shipped machine or an instance type by name, or a machine file by its path.

    Raises ConfigError for an unknown machine or an unreadable file, or with all errors in the file.
    """
    path = shipped_file(machine) or Path(machine)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        is_file = path.exists() or path.name != machine or path.suffix == ".yaml"
        what = f"the machine file {machine} cannot be read: {error.strerror}"
        raise ConfigError(what if is_file else f"there is no machine {machine!r}", _way_out(path)) from error
    return _parsed(path, text)


def _way_out(path: Path) -> str:
    if (path / "machine.yaml").is_file():
        return f"name {path / 'machine.yaml'}"
    name = path.name.removesuffix(".yaml").lower()
    near = get_close_matches(name, (*known_machines(), *instance_types()), n=2)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}`gpuctl plan --machines` lists the machines; a file of your own can be named, too"


@cache
def _parsed(path: Path, text: str) -> MachineSpec:
    """The machine that a file describes; cached, since reading YAML takes milliseconds."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the machine file {path} is not YAML", str(error)) from error
    fields = Fields(document)
    spec = read_machine(path.stem, fields)
    if fields.errors:
        raise ConfigError(f"cannot use the machine file {path}", "; ".join(fields.errors))
    return spec


def topology_level(one: Slot, other: Slot) -> TopologyLevel:
    """The common ancestor of two GPUs, as nvmlDeviceGetTopologyCommonAncestor reports it."""
    if one.pci == other.pci:
        return "internal"
    if one.pcie_root == other.pcie_root:
        if one.switches and one.switches[-1:] == other.switches[-1:]:
            return "single"
        if one.switches and one.switches[:1] == other.switches[:1]:
            return "multiple"
        return "hostbridge"
    if one.numa_node is not None and one.numa_node == other.numa_node:
        return "node"
    return "system"


def read_machine(name: str, fields: Fields) -> MachineSpec:
    """The machine that the fields of a file describe; errors are collected in ``fields``."""
    slots = sorted((_slot(item) for item in fields.items("gpus")), key=lambda slot: slot.pci)
    if not slots:
        fields.refuse("gpus", "needs at least one GPU")
    for part in ("pci", "minor", "uuid"):
        values = [value for slot in slots if (value := getattr(slot, part)) is not None]
        if len(set(values)) != len(values):
            fields.refuse("gpus", f"no two may have the same {part}")
    nvlink = fields.child("nvlink") if "nvlink" in fields else None
    ends_with_mig = nvlink is not None and nvlink.flag("ends_with_mig", default=False)
    links = {} if nvlink is None else _links(nvlink, slots)
    product = _product(fields.named_child("product", known_products(), _load_product))
    for position, slot in enumerate(slots):
        if slot.mig_enabled and product.mig is None:
            fields.refuse(
                f"gpus[{position}].mig_enabled", "needs product.mig, which says what MIG can make of it"
            )
    most = product.sriov.total if product.sriov else 0
    for position, slot in enumerate(slots):
        if slot.virtual_functions > most:
            fields.refuse(f"gpus[{position}].virtual_functions", f"product.sriov has {most} of them")
    spec = MachineSpec(
        name=name,
        driver_version=fields.text("driver_version", r"\d+\.\d+(\.\d+)?", 'version in quotes, "580.95.05"'),
        cuda_driver_version=fields.text("cuda_driver_version", r"\d+\.\d+", 'version in quotes, "13.0"'),
        product=product,
        slots=tuple(_with_links(slot, links) for slot in slots),
        fabric=fields.child("fabric").fabric() if "fabric" in fields else None,
        p2p=fields.flag("p2p", default=True),
        links_end_with_mig=ends_with_mig,
        fabric_manager=_fabric_manager(fields, slots) if "fabric_manager" in fields else None,
        description=fields.text("description") if "description" in fields else "",
        iommu=_iommu_spec(fields.child("iommu")) if "iommu" in fields else _USUAL_IOMMU,
    )
    fields.refuse_unknown()
    return spec


@cache
def _load_product(name: str) -> dict[object, object]:
    """The fields of a product; whether they are right shows in the machines that name it."""
    document: dict[object, object] = yaml.safe_load((PRODUCTS / f"{name}.yaml").read_text(encoding="utf-8"))
    return document


def _product(fields: Fields) -> Product:
    memory_mib = fields.number("memory_mib", minimum=1, default=0)
    major, _, minor = fields.text("compute_capability", r"\d+\.\d+", 'version in quotes, "9.0"').partition(
        "."
    )
    product = Product(
        name=fields.text("name"),
        device_id=fields.number("device_id", minimum=1),
        brand=fields.name("brand", set(BRANDS.values())) if "brand" in fields else None,
        architecture=(
            fields.name("architecture", set(ARCHITECTURES.values())) if "architecture" in fields else None
        ),
        compute_capability=(int(major or 0), int(minor or 0)),
        memory_bytes=memory_mib * 2**20 or None,
        reserved_bytes=_reserved_mib(fields, memory_mib) * 2**20,
        addressing_mode=fields.choice("addressing_mode", ("HMM", "ATS", "None"), default=None),
        mig=_mig(fields),
        virtualization=fields.choice(
            "virtualization", ("none", "passthrough", "vgpu", "host-vgpu", "host-vsga"), default="none"
        ),
        license=fields.text("license") if "license" in fields else None,
        licensed=fields.flag("licensed", default=True),
        sriov=_sriov_spec(fields.child("sriov")) if "sriov" in fields else None,
        vgpu=read_vgpu_host(fields.child("vgpu")) if "vgpu" in fields else None,
    )
    if (product.virtualization == "host-vgpu") != (product.vgpu is not None):
        fields.refuse("vgpu", "must be set if virtualization is host-vgpu, and only then")
    if product.vgpu and product.vgpu.framework == "vfio" and product.sriov is None:
        fields.refuse("sriov", "is needed by the framework vfio of product.vgpu")
    fields.refuse_unknown()
    return product


def _mig(fields: Fields) -> MigCatalogue | None:
    """The field ``product.mig``: the name of a catalogue, or the catalogue itself."""
    if fields.holds("mig", dict):
        return read_catalogue("this machine's", fields.child("mig"))
    name = fields.choice("mig", known_catalogues(), default=None)
    return load_catalogue(name) if name else None


def _reserved_mib(fields: Fields, memory_mib: int) -> int:
    if "reserved_mib" not in fields:
        return min(512, memory_mib // 16)
    reserved_mib = fields.number("reserved_mib", minimum=0)
    if reserved_mib >= memory_mib:
        fields.refuse("reserved_mib", "must be less than memory_mib")
    return reserved_mib


def _slot(fields: Fields) -> Slot:
    slot = Slot(
        pci=fields.address("pci"),
        minor=fields.number("minor", minimum=0),
        numa_node=fields.number("numa_node", minimum=0) if "numa_node" in fields else None,
        pcie_root=fields.text("pcie_root", r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", "root such as pci0000:16"),
        switches=fields.texts("switches"),
        mig_enabled=fields.flag("mig_enabled", default=False),
        module_id=fields.number("module", minimum=1) if "module" in fields else None,
        beside=fields.texts("beside"),
        iommu_group=fields.number("iommu_group", minimum=0) if "iommu_group" in fields else None,
        bridge_in_group=fields.flag("bridge_in_group", default=False),
        virtual_functions=fields.number("virtual_functions", minimum=0, default=0),
        cpus=fields.text("cpus", r"\d+(-\d+)?(,\d+(-\d+)?)*", 'list in quotes, "0-55,112-167"')
        if "cpus" in fields
        else None,
        uuid=fields.text("uuid", _GPU_UUID, "UUID such as GPU-8a3c…") if "uuid" in fields else None,
    )
    if unknown := set(slot.beside) - set(_OTHER_FUNCTIONS):
        known = ", ".join(_OTHER_FUNCTIONS)
        fields.refuse("beside", f"{', '.join(sorted(unknown))}: must be some of {known}")
    fields.refuse_unknown()
    return slot


def _links(fields: Fields, slots: list[Slot]) -> dict[PciAddress, list[NvLinkEnd]]:
    """The NVLinks of each GPU: ``switch_links`` into NVSwitches, and ``pairs`` of [index, index, links]."""
    links: dict[PciAddress, list[NvLinkEnd]] = {slot.pci: [] for slot in slots}
    for ends in links.values():
        ends.extend([NvLinkEnd("switch")] * fields.number("switch_links", minimum=1, default=0))
    for position, (first, second, count) in enumerate(fields.triples("pairs")):
        if first == second or max(first, second) >= len(slots):
            fields.refuse(f"pairs[{position}]", "must name two different GPUs of the machine")
        else:
            links[slots[first].pci].extend([NvLinkEnd("gpu", slots[second].pci)] * count)
            links[slots[second].pci].extend([NvLinkEnd("gpu", slots[first].pci)] * count)
    fields.refuse_unknown()
    return links


def _fabric_manager(fields: Fields, slots: list[Slot]) -> FabricSpec:
    """The field ``fabric_manager``, whose ``partitions`` are lists of the module ids of GPUs."""
    part = fields.child("fabric_manager")
    modules = [slot.module_id for slot in slots if slot.module_id is not None]
    if len(set(modules)) != len(modules):
        fields.refuse("gpus", "no two may have the same module")
    partitions = tuple(frozenset(one) for one in part.number_lists("partitions"))
    if not all(one and one <= set(modules) for one in partitions):
        part.refuse("partitions", "must name modules of the machine's GPUs")
    shared = part.flag("shared", default=False)
    spec = FabricSpec(partitions, shared, part.flag("tells_identities", default=False))
    part.refuse_unknown()
    return spec


def _with_links(slot: Slot, links: dict[PciAddress, list[NvLinkEnd]]) -> Slot:
    return replace(slot, links=tuple(links.get(slot.pci, ())))
