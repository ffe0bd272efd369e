"""Compares NVML's GPUs with what the kernel shows of them: PCI bus and device nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from driver.errors import NodeIncomplete
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, PciFunction, PciView
from driver.hardware.gpu import Gpu
from driver.hardware.pci_view import read_function
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.unread import Unread
from gpuctl.doctor.check import Check, Finding, check, counted, fail, ok, skipped, warn
from gpuctl.verify.subject import Subject
from kubeletplugin.devices.host.gpu_nodes import NVIDIA_MAJOR, DeviceFolder, DeviceNode

_MOST_CHARACTERS = 64 * 1024
OTHER_MACHINE = "the driver's files and sysfs are not those of the fake machine"
_PROC = Path("/proc")
_GPUS = "driver/nvidia/gpus"

# A line of /proc/devices is a major and the name of the driver that registered it.
_MAJOR = re.compile(r"^[ \t]*([0-9]{1,4})[ \t]+(\S+)[ \t]*$", re.MULTILINE | re.ASCII)
# A line of an information file: ``Device Minor: \t 0``.
_LINE = re.compile(r"^([A-Za-z ]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE | re.ASCII)

# nv.h and the UVM module of the open kernel modules: the nodes that are of no GPU.
_CONTROL_MINORS = {"/dev/nvidiactl": 255, "/dev/nvidia-modeset": 254}
_UVM_MINORS = {"/dev/nvidia-uvm": 0, "/dev/nvidia-uvm-tools": 1}
_UVM, _CAPS = "nvidia-uvm", "nvidia-caps"
# The node of a MIG capability is named after its minor.
_CAPABILITY = re.compile(r"/dev/nvidia-caps/nvidia-cap([0-9]{1,7})\Z", re.ASCII)


@check
def _pci_bus(subject: Subject) -> Finding:
    """Whether each GPU of NVML is on the PCI bus, with the nvidia driver, and which GPUs NVML does not list.

    Fails if a GPU is not there or has another driver, or NVML lacks one that the nvidia driver has; warns
    about a GPU without a driver.
    """
    gpus, view, sysfs = subject.gpus, subject.seen.kernel.pci, subject.places.sysfs_root
    if not has_own_files(subject):
        return skipped(OTHER_MACHINE)
    if not view.functions:
        return skipped(f"{sysfs} shows no GPU of NVIDIA")
    wrong = [line for gpu in gpus for line in bus_differences(gpu, view, read_function(sysfs, gpu.pci))]
    others = [one for one in view.physical if one.pci not in {gpu.pci for gpu in gpus}]
    shown = [f"GPU {one.pci}: NVML lacks it; its kernel driver is {one.driver or 'none'}" for one in others]
    texts = _information_files(subject)
    missed = [
        one for one in others if one.driver == NVIDIA_KERNEL_DRIVER and _is_given(subject, texts, one.pci)
    ]
    if wrong or missed:
        return fail(
            f"NVML and the PCI bus below {sysfs} differ",
            "look for messages of the NVIDIA driver in the kernel log (dmesg)",
            [*wrong, *shown],
        )
    if any(one.driver is None for one in others):
        return warn(
            "a GPU has no kernel driver", "bind it to nvidia, or to vfio-pci for virtual machines", shown
        )
    return ok(f"{counted(len(gpus), 'GPU')} of NVML on the PCI bus, with the nvidia driver", shown)


def bus_differences(gpu: Gpu, view: PciView, function: PciFunction | None) -> Iterator[str]:
    """What is wrong with the function at the address of a GPU that NVML lists."""
    if function is None:
        yield f"GPU {gpu.pci}: NVML lists it, and nothing is at its address"
        return
    if view.function(gpu.pci) is None:
        yield (
            f"GPU {gpu.pci}: at its address is no GPU of NVIDIA but vendor {function.vendor_id:04x}, class "
            f"{function.class_code >> 8:04x}"
        )
    if function.driver != NVIDIA_KERNEL_DRIVER:
        yield f"GPU {gpu.pci}: NVML lists it, and its kernel driver is {function.driver or 'none'}"
    if function.numa_node is not None and gpu.numa_node != function.numa_node:
        yield f"GPU {gpu.pci}: NUMA node: inventory {gpu.numa_node}, sysfs {function.numa_node}"


@check
def _device_numbers(subject: Subject) -> Finding:
    """The numbers of the device nodes, by NVML and `/proc/devices`, and whether this user may open them.

    Fails if a node has other numbers: it opens another device, or none; warns if this user may not open one.
    """
    gpus, proc, folder = subject.gpus, _proc(subject), _nodes(subject)
    if subject.is_fake:
        return skipped("the device nodes of a fake machine are null devices")
    caps = sorted(path for path in subject.seen.device_nodes if _CAPABILITY.match(path))
    paths = [*(f"/dev/nvidia{gpu.minor}" for gpu in gpus), *_CONTROL_MINORS, *_UVM_MINORS, *caps]
    nodes = [node for path in paths if (node := folder.find(path))]
    majors = {name: int(major) for major, name in _MAJOR.findall(_read(proc / "devices"))}
    wrong = number_differences(nodes, majors, {f"/dev/nvidia{gpu.minor}": gpu.minor for gpu in gpus})
    if wrong:
        return fail(
            f"{counted(len(wrong), 'device node')} with wrong numbers",
            "remove these nodes, then run nvidia-modprobe -u -c 0 or nvidia-smi on the node",
            wrong,
        )
    # Asking for the rights opens nothing: a GPU that is opened is initialised, and others may be using it.
    closed = [
        node.path
        for node in nodes
        if node.path not in caps and not os.access(node.below_root, os.R_OK | os.W_OK)
    ]
    if closed:
        return warn(
            f"this user may not open {counted(len(closed), 'device node')}",
            "run it as root; containers get nodes of their own",
            closed,
        )
    if not nodes:
        return skipped("there are no device nodes; the check device-nodes names them")
    return ok(f"{counted(len(nodes), 'device node')} with the numbers of NVML and /proc/devices")


def number_differences(
    nodes: Iterable[DeviceNode], majors: Mapping[str, int], gpu_minors: Mapping[str, int]
) -> list[str]:
    """The nodes that have other numbers than they should.

    ``majors`` are those of /proc/devices by the name of the driver, ``gpu_minors`` NVML's minors by path.
    """
    minors = {**gpu_minors, **_CONTROL_MINORS, **_UVM_MINORS}
    wrong = []
    for node in nodes:
        capability = _CAPABILITY.match(node.path)
        minor = minors[node.path] if capability is None else int(capability[1])
        by_name = _CAPS if capability else _UVM if node.path in _UVM_MINORS else None
        major = NVIDIA_MAJOR if by_name is None else majors.get(by_name)
        # Without its major the module is not loaded, or /proc is not the node's.
        if major is not None and (node.major, node.minor) != (major, minor):
            wrong.append(f"{node.path}: {node.major}:{node.minor}, and should be {major}:{minor}")
    return wrong


def has_own_files(subject: Subject) -> bool:
    """Whether driver root and sysfs are of the machine that NVML shows; a fake one has folders for both."""
    return not subject.is_fake or (
        _driver_root(subject) not in (None, Path("/")) and subject.places.sysfs_root != Path("/sys")
    )


def _is_given(subject: Subject, texts: Mapping[PciAddress, str], pci: PciAddress) -> bool:
    """Whether a GPU has a device node here, as far as that is known.

    sysfs and /proc show all GPUs also in a container that was given some of them, and NVML only those.
    """
    minor = dict(_LINE.findall(texts.get(pci, ""))).get("Device Minor", "")
    return not minor.isdecimal() or _nodes(subject).find(f"/dev/nvidia{minor}") is not None


def _information_files(subject: Subject) -> dict[PciAddress, str]:
    """The kernel driver's files about GPUs; none if there are none here."""
    found = {}
    for file in sorted((_proc(subject) / _GPUS).glob("*/information")):
        with suppress(ValueError):
            found[PciAddress.parse(file.parent.name)] = _read(file)
    return found


def _nodes(subject: Subject) -> DeviceFolder:
    root = _driver_root(subject)
    return DeviceFolder.below(*([root] if root else []), subject.places.host_root)


def _proc(subject: Subject) -> Path:
    """The /proc of the node's NVIDIA driver: that of a driver container, or this process's own."""
    root = _driver_root(subject)
    own = None if root is None else root / "proc"
    return own if own is not None and (subject.is_fake or (own / _GPUS).is_dir()) else _PROC


def _driver_root(subject: Subject) -> Path | None:
    if isinstance(subject.seen.driver_files, Unread):
        return None
    try:
        return subject.places.roots().current().seen
    except NodeIncomplete:  # it was removed meanwhile
        return None


def _read(file: Path) -> str:
    """The beginning of a file; empty if it cannot be read."""
    try:
        with file.open(errors="replace") as stream:
            return stream.read(_MOST_CHARACTERS)
    except OSError:
        return ""


KERNEL_CHECKS: tuple[Check[Subject], ...] = (_pci_bus, _device_numbers)
"""The checks of the kernel's view, in their order."""
