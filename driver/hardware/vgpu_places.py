"""Reads which functions of a host can have vGPUs, and which vGPUs exist, in both of the kernel's frameworks.

The vendor-specific VFIO framework (vGPU 17 and kernel 6.8, and later) has a folder ``nvidia`` in each virtual
function, with the type of its vGPU. Older kernels have mediated devices: on the virtual functions of a GPU
with SR-IOV, or on the GPU itself without it. NVIDIA's vGPU guide describes both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from driver.hardware.pci import linked_name, read_text
from driver.hardware.pci_view import function_folder, read_function
from driver.nvml.pci_address import PciAddress
from driver.nvml.vgpu import VgpuType

VgpuFramework = Literal["vendor-vfio", "mdev"]

CURRENT_TYPE = "nvidia/current_vgpu_type"
"""Below a virtual function: the id of its vGPU's type, 0 without a vGPU."""

CREATABLE_TYPES = "nvidia/creatable_vgpu_types"
"""Below a virtual function: a line for each type that can be made there now, ``1152  : NVIDIA L40S-8Q``."""

MDEV_TYPES = "mdev_supported_types"
"""Below a function: a folder ``nvidia-<id>`` for each type."""

_MDEV_TYPE = re.compile(r"nvidia-([0-9]+)\Z", re.ASCII)
_MDEV_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class MadeVgpu:
    """A vGPU that exists: the id of its type, and the UUID of a mediated device, otherwise empty."""

    type_id: int
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class VgpuPlace:
    """A function on which vGPUs are made, with those that exist. A virtual function has one at most."""

    pci: PciAddress
    made: tuple[MadeVgpu, ...] = ()


@dataclass(frozen=True, slots=True)
class VgpuHost:
    """What a host can make of one GPU.

    ``types`` are those that NVML lists, None until it has listed them once. ``framework`` is None if the
    kernel shows neither, since the GPU has no virtual functions yet. ``places`` are its virtual functions in
    their order, or the GPU alone if it has mediated devices and no SR-IOV.
    """

    types: tuple[VgpuType, ...] | None = None
    framework: VgpuFramework | None = None
    places: tuple[VgpuPlace, ...] = ()

    def place(self, gpu: PciAddress, slot: int) -> VgpuPlace | None:
        """The place of a vGPU with this slot; None if the GPU ``gpu`` has no such virtual function."""
        if self.is_on(gpu):
            return self.places[0]
        return self.places[slot] if slot < len(self.places) else None

    def is_on(self, gpu: PciAddress) -> bool:
        """Whether vGPUs are made on the GPU itself, as without SR-IOV."""
        return len(self.places) == 1 and self.places[0].pci == gpu

    @property
    def made(self) -> tuple[MadeVgpu, ...]:
        """All vGPUs that exist."""
        return tuple(one for place in self.places for one in place.made)


def read_vgpu_host(sysfs_root: Path, pci: PciAddress, types: tuple[VgpuType, ...] | None) -> VgpuHost:
    """What the kernel shows of a GPU; ``types`` is what NVML lists."""
    function = read_function(sysfs_root, pci)
    # With SR-IOV the vGPUs are on the virtual functions, without it on the GPU itself.
    for place in () if function is None else (*function.virtual, pci):
        framework = _framework(function_folder(sysfs_root, place))
        if framework is not None:
            places = (pci,) if place == pci or function is None else function.virtual
            found = tuple(VgpuPlace(one, made_on(sysfs_root, one)) for one in places)
            return VgpuHost(types, framework, found)
    return VgpuHost(types)


def made_on(sysfs_root: Path, pci: PciAddress) -> tuple[MadeVgpu, ...]:
    """The vGPUs on a function now."""
    folder = function_folder(sysfs_root, pci)
    current = read_text(folder / CURRENT_TYPE)
    if current is not None and current.isdecimal():
        # A virtual function of this framework has one vGPU at most, which has no UUID.
        return (MadeVgpu(int(current)),) if int(current) else ()
    try:
        # A mediated device has a folder named by its UUID inside its parent's.
        names = sorted(one.name for one in folder.iterdir() if _MDEV_UUID.match(one.name))
    except OSError:
        return ()
    kinds = ((name, _MDEV_TYPE.match(linked_name(folder / name / "mdev_type") or "")) for name in names)
    return tuple(MadeVgpu(int(kind[1]), name) for name, kind in kinds if kind is not None)


def creatable_on(sysfs_root: Path, pci: PciAddress) -> frozenset[int]:
    """The ids of the types of which the kernel can make a vGPU on a function now."""
    folder = function_folder(sysfs_root, pci)
    table = read_text(folder / CREATABLE_TYPES)
    if table is not None:
        numbers = (line.partition(":")[0].strip() for line in table.splitlines())
        return frozenset(int(number) for number in numbers if number.isdecimal())
    try:
        types = [(one, _MDEV_TYPE.match(one.name)) for one in (folder / MDEV_TYPES).iterdir()]
    except OSError:
        return frozenset()
    return frozenset(
        int(match[1])
        for one, match in types
        if match is not None and (read_text(one / "available_instances") or "0") != "0"
    )


def _framework(folder: Path) -> VgpuFramework | None:
    if (folder / CURRENT_TYPE).exists():
        return "vendor-vfio"
    return "mdev" if (folder / MDEV_TYPES).is_dir() else None
