"""Reads what the kernel shows of GPU functions, including virtual ones, and of their IOMMU groups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from driver.hardware.functions import NVIDIA_VENDOR_ID, IommuGroup, PciFunction, PciView
from driver.hardware.pci import (
    bound_driver,
    linked_name,
    numa_node,
    pcie_root,
    read_text,
)
from driver.nvml.pci_address import PciAddress

_VFIO_DEVICE = re.compile(r"vfio[0-9]+\Z", re.ASCII)
_VIRTUAL = re.compile(r"virtfn([0-9]+)\Z", re.ASCII)

# The name of a group that vfio makes up without an IOMMU (drivers/vfio/group.c, vfio_noiommu_group_alloc).
# Such a group protects nothing: the device can write to all of the node's memory.
_WITHOUT_IOMMU = "vfio-noiommu"

# The file ``resource`` has a line ``start end flags`` for each region: first the six BARs of PCI, then the
# ROM, and on some functions more.
_BARS = 6
# IORESOURCE_MEM of linux/ioport.h: the region is memory and not I/O ports.
_MEMORY = 0x200


def pci_view(sysfs_root: Path) -> PciView:
    """All GPU functions of the node and their IOMMU groups; empty if sysfs cannot be read."""
    functions = tuple(
        function
        for pci in _nvidia_functions(sysfs_root)
        if (function := read_function(sysfs_root, pci)) is not None and function.is_gpu
    )
    numbers = sorted({one.iommu_group for one in functions if one.iommu_group is not None})
    groups = tuple(
        group for number in numbers if (group := _group(sysfs_root, number, functions)) is not None
    )
    # The misc device of drivers/iommu/iommufd; class/iommu lists the IOMMUs themselves, iommufd or not.
    has_iommufd = (sysfs_root / "class" / "misc" / "iommu").exists()
    return PciView(functions, groups, has_iommufd)


def read_function(sysfs_root: Path, pci: PciAddress) -> PciFunction | None:
    """One function as it is now; None if sysfs has none there, or does not say what it is."""
    folder = str(function_folder(sysfs_root, pci))
    numbers = (_hexadecimal(read_text(f"{folder}/{name}")) for name in ("vendor", "device", "class"))
    vendor, device, kind = numbers
    if vendor is None or device is None or kind is None:
        return None
    return PciFunction(
        pci=pci,
        vendor_id=vendor,
        device_id=device,
        class_code=kind,
        driver=bound_driver(sysfs_root, pci),
        iommu_group=_guarding_group(sysfs_root, folder),
        numa_node=numa_node(sysfs_root, pci),
        pcie_root=pcie_root(sysfs_root, pci),
        addressable_bytes=_addressable_bytes(read_text(f"{folder}/resource")),
        physical=_address(linked_name(f"{folder}/physfn")),
        virtual=_virtual_functions(folder),
        total_virtual=_decimal(read_text(f"{folder}/sriov_totalvfs")),
        vfio_device=vfio_device_of(folder),
    )


def iommu_group_of(sysfs_root: Path, pci: PciAddress) -> IommuGroup | None:
    """The IOMMU group of a function, with all functions in it; None if no IOMMU guards it."""
    number = _guarding_group(sysfs_root, str(function_folder(sysfs_root, pci)))
    return None if number is None else _group(sysfs_root, number, ())


def function_folder(sysfs_root: Path, pci: PciAddress) -> Path:
    """The folder in sysfs with the files of a function, whether the function exists or not."""
    return sysfs_root / "bus" / "pci" / "devices" / str(pci)


def _nvidia_functions(sysfs_root: Path) -> list[PciAddress]:
    """The addresses of all NVIDIA functions, sorted. One file is read of each function on the bus."""
    try:
        names = os.listdir(f"{sysfs_root}/bus/pci/devices")  # noqa: PTH208 - names are what is asked for
    except OSError:
        return []
    return sorted(
        pci
        for name in names
        # The vendor first: it rules out nearly all functions of the bus.
        if _hexadecimal(read_text(f"{sysfs_root}/bus/pci/devices/{name}/vendor")) == NVIDIA_VENDOR_ID
        and (pci := _address(name)) is not None
    )


def _group(sysfs_root: Path, number: int, known: Iterable[PciFunction]) -> IommuGroup | None:
    """The group with this number; functions that are ``known`` are not read again."""
    try:
        names = os.listdir(f"{_group_folder(sysfs_root, number)}/devices")  # noqa: PTH208 - as above
    except OSError:
        return None
    read = {one.pci: one for one in known}
    addresses = sorted(pci for name in names if (pci := _address(name)) is not None)
    functions = (read.get(pci) or read_function(sysfs_root, pci) for pci in addresses)
    return IommuGroup(number, tuple(one for one in functions if one is not None))


def _group_folder(sysfs_root: Path, number: int) -> str:
    return f"{sysfs_root}/kernel/iommu_groups/{number}"


def _guarding_group(sysfs_root: Path, folder: str) -> int | None:
    """The number of the function's group; None without one, or if vfio invented it without an IOMMU."""
    name = linked_name(f"{folder}/iommu_group")
    if name is None or not name.isdecimal():
        return None
    number = int(name)
    return None if read_text(f"{_group_folder(sysfs_root, number)}/name") == _WITHOUT_IOMMU else number


def _addressable_bytes(resource: str | None) -> int | None:
    """The size of all memory regions together, from the file ``resource``."""
    if resource is None:
        return None
    total = 0
    for line in resource.splitlines()[:_BARS]:
        numbers = [_hexadecimal(word) for word in line.split()]
        if len(numbers) != 3 or None in numbers:
            return None
        start, end, flags = (number or 0 for number in numbers)
        if flags & _MEMORY and end > start:
            # The end is the last byte of the region. A region that is not assigned is all zeros.
            total += end - start + 1
    return total or None


def _virtual_functions(folder: str) -> tuple[PciAddress, ...]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are what is asked for
    except OSError:
        return ()
    # By number and not by name: virtfn10 comes after virtfn9, and the number is the VF's index.
    numbered = sorted(int(match[1]) for name in names if (match := _VIRTUAL.match(name)))
    found = (_address(linked_name(f"{folder}/virtfn{number}")) for number in numbered)
    return tuple(pci for pci in found if pci is not None)


def vfio_device_of(device: str | Path) -> str | None:
    """vfio's name of a function or a mediated device; None if there is no device node of that name."""
    folder = f"{device}/vfio-dev"
    try:
        names = sorted(filter(_VFIO_DEVICE.match, os.listdir(folder)))  # noqa: PTH208 - as above
    except OSError:
        return None
    # Without IOMMUFD, or without an IOMMU, vfio registers the device but no character device for it: the
    # folder exists, and ``dev`` in it does not.
    return next((name for name in names if os.path.exists(f"{folder}/{name}/dev")), None)  # noqa: PTH110 - as above


def _address(name: str | None) -> PciAddress | None:
    try:
        return PciAddress.parse(name or "")
    except ValueError:
        return None


def _hexadecimal(text: str | None) -> int | None:
    try:
        return int(text or "", 16)
    except ValueError:
        return None


def _decimal(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
