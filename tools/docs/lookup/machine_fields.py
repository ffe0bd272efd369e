"""The table of the fields of machine files, which are found by recording what their reader reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from driver.nvml.api import FabricInfo
from driver.nvml.pci_address import PciAddress
from fakegpu.machine import spec
from fakegpu.machine.fields import Fields
from tools.docs.lookup.marked import code, table

C = TypeVar("C", bound="str | None")


@dataclass(slots=True)
class ReadField:
    """How a field is read: the values that it takes, and its default."""

    takes: str
    default: str = ""
    is_required: bool = False


WORDS = {
    "description": "what the machine is, in a sentence",
    "driver_version": (
        "the NVIDIA driver; from 615 on it can limit the memory of control groups, except in a vGPU guest "
        "and in MIG mode"
    ),
    "cuda_driver_version": "the newest CUDA that this driver supports",
    "product.name": "the GPUs' name in NVML; all GPUs of a machine are of one model",
    "product.device_id": "the PCI device id, without the vendor",
    "product.brand": "the brand in a word of NVML; absent if NVML gives a number without a word",
    "product.architecture": "the architecture, likewise",
    "product.compute_capability": "the CUDA compute capability",
    "product.memory_mib": "the memory of a GPU as NVML counts it; absent if NVML reports none",
    "product.reserved_mib": (
        "the part of it that the NVIDIA driver keeps for itself; by default 512, but at most a sixteenth of "
        "the memory"
    ),
    "product.addressing_mode": "absent if the driver is too old to report it",
    "product.mig": (
        "the partitions that MIG can make: the name of a file in `fakegpu/mig_profiles/`, or a mapping with "
        "the fields of such a file"
    ),
    "product.virtualization": "the virtualization mode in NVML",
    "product.license": (
        "the product that a vGPU needs a license for, as NVML names it; absent if there is no licensing"
    ),
    "product.licensed": "whether it has a license at first",
    "product.sriov.total": "how many virtual functions a GPU can have",
    "product.sriov.device_id": "their PCI device id",
    "product.vgpu.framework": "how the host makes vGPUs; goes with `virtualization: host-vgpu`",
    "product.vgpu.types": (
        "the vGPU types: the name of a file in `fakegpu/vgpu_types/`, or the list `types` of such a file"
    ),
    "gpus[].pci": "the PCI address; each only once",
    "gpus[].minor": "the number of `/dev/nvidia<minor>`; each only once",
    "gpus[].numa_node": "the NUMA node; absent if the firmware reports none",
    "gpus[].cpus": "the CPUs near it; absent if unknown",
    "gpus[].pcie_root": "the PCIe root as in sysfs",
    "gpus[].switches": (
        "names of the PCIe switches from the root down to the GPU; GPUs below one switch use one name"
    ),
    "gpus[].mig_enabled": (
        "MIG mode is on at first, without partitions; on Ampere it lasts over a reboot. Needs `product.mig`"
    ),
    "gpus[].module": "the place on the baseboard, by which the fabric manager knows a GPU",
    "gpus[].beside": "the other functions of the board, from `.1` on: some of `audio`, `usb`, `ucsi`",
    "gpus[].iommu_group": (
        "the IOMMU group; GPUs with the same number share it, and one without has a group of its own"
    ),
    "gpus[].bridge_in_group": "the bridge above the GPU is in its group, too",
    "gpus[].virtual_functions": "how many virtual functions exist at first",
    "gpus[].uuid": "the UUID, such as that of a recording; otherwise it follows from the machine's name",
    "nvlink.switch_links": "how many NVLinks go from each GPU into NVSwitches",
    "nvlink.pairs": "NVLinks between two GPUs, which are counted in the order of their PCI addresses",
    "nvlink.ends_with_mig": "the NVLinks of a GPU in MIG mode are down at both ends",
    "fabric.cluster_uuid": (
        "the multi-node NVLink fabric that the machine is in; all zero for a machine that is alone"
    ),
    "fabric.clique": "its clique there",
    "fabric.state": "how far the fabric is set up",
    "fabric_manager.partitions": "the fabric partitions, each the `gpus[].module` numbers of its GPUs",
    "fabric_manager.shared": "the fabric manager runs in shared NVSwitch mode at first",
    "fabric_manager.tells_identities": "it also reports the UUIDs and addresses of GPUs",
    "iommu.present": "`false`: the machine has no IOMMU, so nothing can be passed through",
    "iommu.iommufd": (
        "`false`: the kernel has no `/dev/iommu`, and functions have no nodes of their own in "
        "`/dev/vfio/devices`"
    ),
    "iommu.unsafe_noiommu": (
        "without an IOMMU vfio makes up groups, by its parameter enable_unsafe_noiommu_mode"
    ),
    "iommu.variant_drivers[].name": "a driver of vfio for some GPUs, such as `nvgrace-gpu-vfio-pci`",
    "iommu.variant_drivers[].device_ids": "the PCI device ids that it is for",
    "p2p": "whether peers can read each other's memory",
}
"""The meaning of each field."""


class _Recorder(Fields):
    """A mapping that has every field, and records which fields are read and how."""

    def __init__(self, path: str, found: dict[str, ReadField]) -> None:
        super().__init__({})
        self._where, self._found, self._optional = path, found, set[str]()

    def __contains__(self, key: str) -> bool:
        # The reader asks whether a field exists only for optional ones.
        self._optional.add(key)
        return True

    def refuse(self, key: str, demand: str) -> None:
        """Do nothing: the values here are placeholders, which may be invalid."""

    def text(self, key: str, pattern: str = r".+", what: str = "text") -> str:  # noqa: ARG002 - as Fields has it
        self._note(key, what)
        return ""

    def name(self, key: str, names: Collection[str]) -> str:
        self._note(key, f"one of {', '.join(map(code, sorted(names)))}")
        return ""

    def number(self, key: str, minimum: int, default: int | None = None) -> int:
        self._note(
            key,
            f"whole number from {minimum}",
            None if default is None else _words_of(default, minimum),
        )
        return minimum

    def flag(self, key: str, *, default: bool) -> bool:
        self._note(key, "true or false", str(default).lower())
        return default

    def choice(self, key: str, values: tuple[C, ...], default: C) -> C:
        self._note(key, f"one of {', '.join(code(str(value)) for value in values)}", default or "")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        self._note(key, "list of texts", "")
        return ()

    def numbers(self, key: str) -> tuple[int, ...]:
        self._note(key, "list of whole numbers")
        return ()

    def number_lists(self, key: str) -> list[tuple[int, ...]]:
        self._note(key, "list of lists of whole numbers")
        return []

    def triples(self, key: str) -> list[tuple[int, int, int]]:
        self._note(key, "list of `[GPU, GPU, links]`", "")
        return []

    def address(self, key: str) -> PciAddress:
        self._note(key, '`"0000:17:00.0"`')
        return PciAddress(0, 0, 0, 0)

    def fabric(self) -> FabricInfo:
        super().fabric()
        return FabricInfo("completed", "00000000-0000-0000-0000-000000000000", 0)

    def child(self, key: str) -> Fields:
        return _Recorder(self._at(key), self._found)

    def items(self, key: str) -> Iterator[Fields]:
        yield _Recorder(f"{self._at(key)}[]", self._found)

    def _at(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _note(self, key: str, takes: str, default: str | None = None) -> None:
        is_required = default is None and key not in self._optional
        self._found[self._at(key)] = ReadField(takes, default or "", is_required)


def _words_of(default: int, minimum: int) -> str:
    """A default in words; a default below the minimum means that the field is absent."""
    return str(default) if default >= minimum else ""


def read_fields() -> dict[str, ReadField]:
    """All fields of a machine file by their paths."""
    found: dict[str, ReadField] = {}
    spec.read_machine("any", _Recorder("", found))
    return found


def field_table() -> str:
    """All fields as a table; ValueError for a field without a meaning, or a meaning without a field."""
    found = read_fields()
    if set(found) != set(WORDS):
        raise ValueError(f"fields and words in machine_fields.py differ: {sorted(set(found) ^ set(WORDS))}")
    rows: Sequence[tuple[str, ...]] = [
        (
            code(path),
            found[path].takes,
            "required" if found[path].is_required else code(found[path].default),
            meaning,
        )
        for path, meaning in WORDS.items()
    ]
    return table(("field", "takes", "default", "says"), rows)
