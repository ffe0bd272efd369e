"""What vfio shows of the functions that it has: groups, devices, and their nodes below /dev/vfio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu.sysfs.drivers import has_vfio_device
from fakegpu.sysfs.entries import LinkTo
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.vgpus import nodes_of_vgpus

if TYPE_CHECKING:
    from driver.nvml.pci_address import PciAddress
    from fakegpu.sysfs.binding import Node

_GROUP_MAJOR, _DEVICE_MAJOR, _MISC_MAJOR = 243, 511, 10
_CONTAINER_MINOR, _IOMMUFD_MINOR = 196, 126


def groups_of(node: Node, pci: PciAddress) -> tuple[int, ...]:
    """The IOMMU group of a function, one or none; vfio may have invented it."""
    if node.spec.iommu.present or _is_invented(node, pci):
        return (functions_of(node.spec)[pci].group,)
    return ()


def vfio_files(node: Node) -> dict[str, str | LinkTo]:
    """The files of vfio below the root of sysfs."""
    found: dict[str, str | LinkTo] = {}
    if node.spec.iommu.present:
        for one in functions_of(node.spec).values():
            if one.pci in node.kernel.functions:
                found[f"kernel/iommu_groups/{one.group}/type"] = "DMA-FQ\n"
    if "vfio" in node.kernel.modules:
        unsafe = "Y" if node.spec.iommu.unsafe_noiommu else "N"
        found["module/vfio/parameters/enable_unsafe_noiommu_mode"] = f"{unsafe}\n"
        found |= _misc("vfio", _CONTAINER_MINOR)
    if "iommufd" in node.kernel.modules:
        found |= _misc("iommu", _IOMMUFD_MINOR)
    for pci, state in node.kernel.functions.items():
        if state.vfio is None:
            continue
        function = functions_of(node.spec)[pci]
        invented = _is_invented(node, pci)
        group = f"devices/virtual/vfio/{'noiommu-' if invented else ''}{function.group}"
        found[f"{group}/dev"] = f"{_GROUP_MAJOR}:{function.group}\n"
        found[f"class/vfio/{group.rpartition('/')[2]}"] = LinkTo(group)
        if invented:
            found[f"kernel/iommu_groups/{function.group}/name"] = "vfio-noiommu\n"
        place = f"{function.folder}/vfio-dev/vfio{state.vfio}"
        found[f"{place}/device"] = LinkTo(function.folder)
        found[f"class/vfio-dev/vfio{state.vfio}"] = LinkTo(place)
        if node.spec.iommu.iommufd and not invented:
            # Without CONFIG_VFIO_DEVICE_CDEV the folder is there and has no device number.
            found[f"{place}/dev"] = f"{_DEVICE_MAJOR}:{state.vfio}\n"
    return found


def vfio_nodes(node: Node) -> set[str]:
    """The device nodes that vfio and IOMMUFD have, below /dev."""
    found = set()
    if "vfio" in node.kernel.modules:
        found.add("vfio/vfio")
    if "iommufd" in node.kernel.modules:
        found.add("iommu")
    for pci, state in node.kernel.functions.items():
        if state.vfio is not None:
            invented = _is_invented(node, pci)
            found.add(f"vfio/{'noiommu-' if invented else ''}{functions_of(node.spec)[pci].group}")
            if node.spec.iommu.iommufd and not invented:
                found.add(f"vfio/devices/vfio{state.vfio}")
    return found | nodes_of_vgpus(node)


def _is_invented(node: Node, pci: PciAddress) -> bool:
    """Whether vfio made a group of its own for the function, as it does without an IOMMU when it may."""
    spec = node.spec
    by_vfio = has_vfio_device(spec, node.kernel.functions[pci].driver, functions_of(spec)[pci])
    return not spec.iommu.present and spec.iommu.unsafe_noiommu and by_vfio


def _misc(name: str, minor: int) -> dict[str, str | LinkTo]:
    place = f"devices/virtual/misc/{name}"
    return {f"{place}/dev": f"{_MISC_MAJOR}:{minor}\n", f"class/misc/{name}": LinkTo(place)}
