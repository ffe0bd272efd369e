"""Looks up PCI functions in sysfs below a given root. What sysfs does not show is None and never guessed.

The table of product names is for GPUs that NVML does not list. It has only device ids whose name is certain:
data centre GPUs, from the table of the open kernel modules. If boards with one device id have several names,
all of them are here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from driver.nvml.pci_address import PciAddress

# ``\Z`` and not ``$``, which would also match before a newline at the end.
_DRM_NODE = re.compile(r"^(card|renderD)(\d+)\Z")
_CPU_LIST = re.compile(r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\Z")
_PCIE_ROOT = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")

PRODUCTS: dict[int, tuple[str, ...]] = {
    0x1B38: ("Tesla P40",),
    0x1BB3: ("Tesla P4",),
    0x1DB1: ("Tesla V100-SXM2-16GB",),
    0x1DB4: ("Tesla V100-PCIE-16GB",),
    0x1DB5: ("Tesla V100-SXM2-32GB",),
    0x1DB6: ("Tesla V100-PCIE-32GB",),
    0x1DB8: ("Tesla V100-SXM3-32GB",),
    0x1EB8: ("Tesla T4",),
    0x20B0: ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PG509-200"),
    0x20B1: ("NVIDIA A100-PCIE-40GB",),
    0x20B2: ("NVIDIA A100-SXM4-80GB", "NVIDIA PG509-210"),
    0x20B5: ("NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-80GB"),
    0x20B6: ("NVIDIA PG506-230", "NVIDIA PG506-232"),
    0x20B7: ("NVIDIA A30",),
    0x20BD: ("NVIDIA A800-SXM4-40GB",),
    0x20F1: ("NVIDIA A100-PCIE-40GB",),
    0x20F3: ("NVIDIA A800-SXM4-80GB",),
    0x20F5: ("NVIDIA A800 80GB PCIe",),
    0x20F6: ("NVIDIA A800 40GB Active",),
    0x2235: ("NVIDIA A40",),
    0x2236: ("NVIDIA A10",),
    0x2321: ("NVIDIA H100 NVL",),
    0x2322: ("NVIDIA H800 PCIe",),
    0x2324: ("NVIDIA H800",),
    0x2329: ("NVIDIA H20",),
    0x2330: ("NVIDIA H100 80GB HBM3",),
    0x2331: ("NVIDIA H100 PCIe",),
    0x2335: ("NVIDIA H200",),
    0x2339: ("NVIDIA H100",),
    0x233A: ("NVIDIA H800 NVL",),
    0x233B: ("NVIDIA H200 NVL",),
    0x2342: ("NVIDIA GH200 120GB", "NVIDIA GH200 480GB"),
    0x2348: ("NVIDIA GH200 144G HBM3e",),
    0x25B6: ("NVIDIA A2", "NVIDIA A16"),
    0x26B5: ("NVIDIA L40",),
    0x26B9: ("NVIDIA L40S",),
    0x26BA: ("NVIDIA L20",),
    0x27B8: ("NVIDIA L4",),
    0x2901: ("NVIDIA B200",),
    0x2941: ("NVIDIA GB200",),
    0x2BB1: ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition",),
    0x2BB4: ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",),
    0x2BB5: ("NVIDIA RTX PRO 6000 Blackwell Server Edition",),
    0x3182: ("NVIDIA B300 SXM6 AC",),
    0x31C2: ("NVIDIA GB300",),
}
"""Device id -> product names as NVML gives them in any driver version."""


def numa_node(sysfs_root: Path, pci: PciAddress) -> int | None:
    """The function's NUMA node; None if sysfs has none."""
    text = read_text(f"{_function(sysfs_root, pci)}/numa_node")
    # The kernel writes -1 (NUMA_NO_NODE) if the firmware names no node.
    if text is None or not text.isdecimal():
        return None
    return int(text)


def pcie_root(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The root complex, ``pci0000:00``, as resource.kubernetes.io/pcieRoot defines it.

    That is the first component below /sys/devices of the target of the function's link, if the target is
    there and ends in the function's address.
    """
    parts = _place(sysfs_root, pci)
    return parts[0] if parts else None


def pcie_switches(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The ports of PCIe switches that the function shares with its neighbours, from the root down.

    These are the ports between the root port and the port that leads to this function alone: ``01:00.0`` is
    the upstream port of a switch, and each switch below it adds a downstream and an upstream port. Empty
    without a switch, and if sysfs does not show the function.
    """
    # sysfs nests a bridge's folder in that of the bridge above it. Component 0 is the root complex, 1 the
    # root port; the last two are the port that leads to this function alone and the function.
    return tuple(part.partition(":")[2] for part in _place(sysfs_root, pci)[2:-2])


def local_cpus(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The CPUs near the function, ``0-55,112-167``; None if sysfs names none."""
    text = read_text(f"{_function(sysfs_root, pci)}/local_cpulist")
    return text if text and _CPU_LIST.match(text) else None


def bound_driver(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The kernel driver that is bound to the function, ``nvidia`` or ``vfio-pci``; None if none is."""
    return linked_name(f"{_function(sysfs_root, pci)}/driver")


def drm_folder(sysfs_root: Path, pci: PciAddress) -> str:
    """The folder in sysfs with the names of the function's nodes in /dev/dri; missing without nvidia-drm."""
    return f"{_function(sysfs_root, pci)}/drm"


def drm_nodes(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The names of the function's nodes in /dev/dri: ``card1``, ``renderD129``; sorted."""
    try:
        names = os.listdir(drm_folder(sysfs_root, pci))  # noqa: PTH208 - names are what is asked for
    except OSError:
        return ()
    return tuple(sorted(name for name in names if _DRM_NODE.match(name)))


def _place(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The path components below /sys/devices from the root complex to the function; empty if none."""
    link = _function(sysfs_root, pci)
    try:
        # Only this link is followed, and not links in the path of the root as resolve() would.
        target = os.path.normpath(f"{link}/../{os.readlink(link)}")  # noqa: PTH115 - see read_text
    except OSError:
        return ()
    devices = os.path.normpath(f"{sysfs_root}/devices") + "/"
    if not target.startswith(devices):
        return ()
    parts = tuple(target.removeprefix(devices).split("/"))
    # A path that does not begin at a PCI host bridge has no root complex to name.
    if not parts or parts[-1] != str(pci) or _PCIE_ROOT.match(parts[0]) is None:
        return ()
    return parts


def _function(sysfs_root: Path, pci: PciAddress) -> str:
    return f"{sysfs_root}/bus/pci/devices/{pci}"


# Text and os in these two: each look at a node with virtual functions reads some thousand files.


def linked_name(link: str | Path) -> str | None:
    """The last component of a link's target; None if there is no such link."""
    try:
        return os.readlink(link).rpartition("/")[2]  # noqa: PTH115 - see above
    except OSError:
        return None


def read_text(path: str | Path) -> str | None:
    """The content of a file of sysfs without the end of its line; None if it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - see above
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None


def product_name(device_id: int) -> str | None:
    """The name that NVML would give a GPU of this device id; None if the id alone does not decide."""
    names = PRODUCTS.get(device_id, ())
    return names[0] if len(names) == 1 else None
