"""Which files the pretend kernel shows in sysfs, and how the files of a folder are made the same.

Files are a mapping: path below the root -> the text of a file, or the target of a link below the root. Those
of vfio are among them: groups, devices, and their nodes below /dev/vfio.
"""

from __future__ import annotations

import os
import shutil
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.capabilities import remove_empty_folders
from fakegpu.machine.spec import MachineSpec
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.drivers import has_vfio_device, loaded_drivers
from fakegpu.sysfs.functions import Function, functions_of
from fakegpu.sysfs.vgpus import LinkTo, files_of_vgpus, functions_with_other_vgpus, nodes_of_vgpus

DEVICES, DRIVERS, GROUPS = "bus/pci/devices", "bus/pci/drivers", "kernel/iommu_groups"
# IORESOURCE_MEM, with the flags of a 64-bit region.
_MEMORY_FLAGS = 0x140204
PRETENDED = ".pretended"
"""A file in the root of each pretended sysfs, so that the real one is never taken for it."""

# card0 is the graphics chip of the server's management controller. Render nodes begin at 128 in every kernel.
_FIRST_RENDER, _FIRST_CARD = 128, 1

# Fixed: major 10 for misc devices, and the minors of /dev/vfio/vfio. The others are given by the kernel.
_GROUP_MAJOR, _DEVICE_MAJOR, _MISC_MAJOR = 243, 511, 10
_CONTAINER_MINOR, _IOMMUFD_MINOR = 196, 126


def drm_names(spec: MachineSpec) -> Mapping[PciAddress, tuple[str, str]]:
    """The DRM nodes of each slot. They are numbered by slot, so not like the minors of NVIDIA's nodes."""
    return {
        slot.pci: (f"card{_FIRST_CARD + number}", f"renderD{_FIRST_RENDER + number}")
        for number, slot in enumerate(spec.slots)
    }


def all_files(node: Node) -> dict[str, str | LinkTo]:
    """Everything that the kernel shows of the machine now."""
    found = _node_files(node)
    for pci in node.kernel.functions:
        found |= _function_files(node, pci)
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """What changes: files and whole folders that are removed, and files that are new or different."""

    gone: frozenset[str]
    files: Mapping[str, str | LinkTo]
    folders_gone: tuple[str, ...] = ()


def change_of(before: Node, after: Node) -> Change:
    """How the files below the root change when the one node becomes the other."""
    # A machine has thousands of files: only those of functions that changed are compared.
    old, new = _node_files(before), _node_files(after)
    others = functions_with_other_vgpus(before, after)
    for pci in before.kernel.functions.keys() | after.kernel.functions.keys():
        was, now = before.kernel.functions.get(pci), after.kernel.functions.get(pci)
        if was != now or pci in others:
            old |= _function_files(before, pci) if was is not None else {}
            new |= _function_files(after, pci) if now is not None else {}
    left = before.kernel.functions.keys() - after.kernel.functions.keys()
    return Change(
        frozenset(old.keys() - new.keys()),
        {path: one for path, one in new.items() if old.get(path) != one},
        tuple(functions_of(before.spec)[pci].folder for pci in left),
    )


def apply(root: Path, change: Change) -> None:
    """Make the files below a root show a change."""
    for path in sorted(change.gone, reverse=True):
        (root / path).unlink(missing_ok=True)
        remove_empty_folders((root / path).parent, root)
    for path in change.folders_gone:
        shutil.rmtree(root / path, ignore_errors=True)
    for path, entry in change.files.items():
        _put(root, path, entry)


def show(root: Path, files: Mapping[str, str | LinkTo]) -> None:
    """Make the files below a root exactly these, whatever is there."""
    # Readers list these folders even while they are empty.
    for folder in (DEVICES, DRIVERS, GROUPS):
        (root / folder).mkdir(parents=True, exist_ok=True)
    there = {path for path in _paths_in(root) if path != PRETENDED}
    if not there:
        _write_first(root, files)
        return
    different = {path: entry for path, entry in files.items() if _shown(root / path) != _wanted(path, entry)}
    apply(root, Change(frozenset(there - files.keys()), different))


def _write_first(root: Path, files: Mapping[str, str | LinkTo]) -> None:
    """Write files that nobody reads yet: none has to be replaced by rename, so this is faster than apply."""
    made: set[str] = set()
    # Text, since a host of vGPUs has ten thousand files.
    for path, entry in files.items():
        place = f"{root}/{path}"
        folder = place.rpartition("/")[0]
        if folder not in made:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - see above
            made.add(folder)
        if isinstance(entry, LinkTo):
            os.symlink(_wanted(path, entry), place)  # noqa: PTH211 - see above
        else:
            with open(place, "x", encoding="ascii") as file:  # noqa: PTH123 - see above
                file.write(entry)


def _paths_in(root: Path) -> Iterator[str]:
    """All files and links below the root, as paths below it."""
    for folder, inner, names in os.walk(root):
        # os.walk counts a link to a folder as a folder, and does not follow it.
        links = [name for name in inner if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            yield Path(folder, name).relative_to(root).as_posix()


def _function_files(node: Node, pci: PciAddress) -> dict[str, str | LinkTo]:
    spec, function, state = node.spec, functions_of(node.spec)[pci], node.kernel.functions[pci]
    folder, sriov = function.folder, spec.product.sriov
    found = dict(_fixed_files(function))
    # The kernel prints a null pointer if driver_override is not set.
    found[f"{folder}/driver_override"] = f"{state.override or '(null)'}\n"
    # The kernel removes the links to a driver before it calls the driver's remove function.
    if state.driver is not None and not state.releasing:
        found[f"{folder}/driver"] = LinkTo(f"{DRIVERS}/{state.driver}")
        found[f"{DRIVERS}/{state.driver}/{pci}"] = LinkTo(folder)
    if state.driver == "nvidia":
        for name in drm_names(spec).get(pci, ()):
            # 226 is DRM's major; the number in a node's name is its minor.
            found[f"{folder}/drm/{name}/dev"] = f"226:{name.strip(string.ascii_letters)}\n"
    if sriov is not None and function.is_gpu and function.physical is None:
        found |= {
            f"{folder}/sriov_totalvfs": f"{sriov.total}\n",
            f"{folder}/sriov_vf_device": f"{sriov.device_id:x}\n",
            f"{folder}/sriov_numvfs": f"{state.virtual}\n",
            f"{folder}/sriov_drivers_autoprobe": f"{state.autoprobe:d}\n",
        }
    if function.physical is not None:
        physical = functions_of(spec)[function.physical].folder
        found[f"{folder}/physfn"] = LinkTo(physical)
        found[f"{physical}/virtfn{function.number}"] = LinkTo(folder)
    for group in _groups_of(node, pci):
        found[f"{folder}/iommu_group"] = LinkTo(f"{GROUPS}/{group}")
        found[f"{GROUPS}/{group}/devices/{pci}"] = LinkTo(folder)
    return found | files_of_vgpus(node, pci)


@lru_cache(maxsize=4096)
def _fixed_files(function: Function) -> Mapping[str, str | LinkTo]:
    """The files of a function that never change."""
    code = f"{function.class_code:06x}"
    upper = code.upper()
    alias = (
        f"pci:v{function.vendor_id:08X}d{function.device_id:08X}sv{function.vendor_id:08X}sd00000000"
        f"bc{upper[:2]}sc{upper[2:4]}i{upper[4:]}"
    )
    files = {
        "vendor": f"0x{function.vendor_id:04x}",
        "device": f"0x{function.device_id:04x}",
        "subsystem_vendor": f"0x{function.vendor_id:04x}",
        "subsystem_device": "0x0000",
        "class": f"0x{code}",
        "numa_node": str(function.numa_node),
        "local_cpulist": function.cpus or "",
        "modalias": alias,
        "resource": _resource(function),
    }
    found: dict[str, str | LinkTo] = {
        f"{function.folder}/{name}": f"{text}\n" for name, text in files.items()
    }
    found[f"{DEVICES}/{function.pci}"] = LinkTo(function.folder)
    return found


def _resource(function: Function) -> str:
    """The file ``resource``: start, end and flags of each region."""
    # Six regions of the function, its ROM, and six of its virtual functions.
    lines = ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13
    at = (1 << 40) + (function.group << 42) + (function.pci.function << 41)
    for number, size in function.regions:
        # A PCI region is aligned to its own size.
        at = (at + size - 1) // size * size
        lines[number] = f"0x{at:016x} 0x{at + size - 1:016x} 0x{_MEMORY_FLAGS:016x}"
        at += size
    return "\n".join(lines)


def _node_files(node: Node) -> dict[str, str | LinkTo]:
    """The files that belong to no function: the bus, the drivers, modules, vfio, the root of cgroup v2."""
    found: dict[str, str | LinkTo] = {
        "bus/pci/drivers_probe": "",
        "bus/pci/drivers_autoprobe": "1\n",
        "fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    }
    for driver in loaded_drivers(node.spec, node.kernel.modules):
        place = f"{DRIVERS}/{driver.name}"
        found |= {f"{place}/{name}": "" for name in ("bind", "unbind", "new_id", "remove_id", "uevent")}
        if driver.module:
            found[f"{place}/module"] = LinkTo(f"module/{driver.module}")
            found[f"module/{driver.module}/drivers/pci:{driver.name}"] = LinkTo(place)
    for module in node.kernel.modules:
        found[f"module/{module}/initstate"] = "live\n"
    return found | _vfio_files(node)


def _put(root: Path, path: str, entry: str | LinkTo) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    wanted = _wanted(path, entry)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    # By rename, so that no reader sees half a file, or none.
    beside = place.with_name(f".{place.name}.new")
    if isinstance(entry, LinkTo):
        beside.unlink(missing_ok=True)
        beside.symlink_to(wanted)
    else:
        beside.write_text(wanted, encoding="ascii")
    beside.rename(place)


def _wanted(path: str, entry: str | LinkTo) -> str:
    # Links in sysfs are relative, so that they also work below another root.
    return os.path.relpath(entry.path, Path(path).parent) if isinstance(entry, LinkTo) else entry


def _shown(place: Path) -> str | None:
    try:
        return str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii")
    except OSError:
        return None


def _groups_of(node: Node, pci: PciAddress) -> tuple[int, ...]:
    """The IOMMU group of a function, one or none; vfio may have made it up."""
    if node.spec.iommu.present or _is_invented(node, pci):
        return (functions_of(node.spec)[pci].group,)
    return ()


def _vfio_files(node: Node) -> dict[str, str | LinkTo]:
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
            # Without CONFIG_VFIO_DEVICE_CDEV the folder exists, but has no device number.
            found[f"{place}/dev"] = f"{_DEVICE_MAJOR}:{state.vfio}\n"
    return found


def vfio_nodes(node: Node) -> set[str]:
    """The device nodes of vfio and IOMMUFD, as paths below /dev."""
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
    """Whether vfio made up a group for the function, as it does without an IOMMU in its unsafe mode."""
    spec = node.spec
    by_vfio = has_vfio_device(spec, node.kernel.functions[pci].driver, functions_of(spec)[pci])
    return not spec.iommu.present and spec.iommu.unsafe_noiommu and by_vfio


def _misc(name: str, minor: int) -> dict[str, str | LinkTo]:
    place = f"devices/virtual/misc/{name}"
    return {f"{place}/dev": f"{_MISC_MAJOR}:{minor}\n", f"class/misc/{name}": LinkTo(place)}
