"""Looks up PCI functions in sysfs below a given root; what sysfs does not tell is None, never guessed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from driver.nvml.pci_address import PciAddress

_DRM_NODE = re.compile(r"^(card|renderD)(\d+)\Z")
_CPU_LIST = re.compile(r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*\Z")
_PCIE_ROOT = re.compile(r"^pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")


def numa_node(sysfs_root: Path, pci: PciAddress) -> int | None:
    """The function's NUMA node; None where sysfs has none, which it also writes as a negative number."""
    text = read_text(_function(sysfs_root, pci) / "numa_node")
    if text is None or not text.isdecimal():
        return None
    return int(text)


def pcie_root(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The root complex, ``pci0000:00``, as resource.kubernetes.io/pcieRoot defines it.

    That is the first component below /sys/devices of where the function's link leads, if the link
    leads there and ends in the function's address.
    """
    parts = _place(sysfs_root, pci)
    return parts[0] if parts else None


def pcie_switches(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The ports of PCIe switches that the function shares with its neighbours, from the root down.

    They are what lies between the root port and the port that leads to this function alone: ``01:00.0``, the
    upstream port of a switch, and for each switch below it a downstream and an upstream port more, as
    /sys/devices nests them. Empty where there is no switch, and where sysfs does not tell.
    """
    return tuple(part.partition(":")[2] for part in _place(sysfs_root, pci)[2:-2])


def local_cpus(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The CPUs that are near the function, ``0-55,112-167``; None where sysfs tells none."""
    text = read_text(_function(sysfs_root, pci) / "local_cpulist")
    return text if text and _CPU_LIST.match(text) else None


def bound_driver(sysfs_root: Path, pci: PciAddress) -> str | None:
    """The kernel driver that holds the function, such as ``nvidia`` or ``vfio-pci``; None where none does."""
    return linked_name(_function(sysfs_root, pci) / "driver")


def drm_folder(sysfs_root: Path, pci: PciAddress) -> str:
    """Where sysfs names the function's nodes below /dev/dri; missing without nvidia-drm."""
    return f"{sysfs_root}/bus/pci/devices/{pci}/drm"


def drm_nodes(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The names of the function's nodes below /dev/dri: ``card1``, ``renderD129``; sorted."""
    try:
        names = os.listdir(drm_folder(sysfs_root, pci))  # noqa: PTH208 - names are what is asked for
    except OSError:
        return ()
    return tuple(sorted(name for name in names if _DRM_NODE.match(name)))


def _place(sysfs_root: Path, pci: PciAddress) -> tuple[str, ...]:
    """The components below /sys/devices from the root complex to the function; empty where none is told."""
    try:
        link = _function(sysfs_root, pci)
        target = Path(os.path.normpath(link.parent / link.readlink()))
    except OSError:
        return ()
    devices = Path(os.path.normpath(sysfs_root / "devices"))
    if not target.is_relative_to(devices):
        return ()
    parts = target.relative_to(devices).parts
    if not parts or parts[-1] != str(pci) or _PCIE_ROOT.match(parts[0]) is None:
        return ()
    return parts


def _function(sysfs_root: Path, pci: PciAddress) -> Path:
    return sysfs_root / "bus" / "pci" / "devices" / str(pci)


def linked_name(link: Path) -> str | None:
    """The last component of where a link leads; None where there is no such link."""
    try:
        return link.readlink().name
    except OSError:
        return None


def read_text(path: Path) -> str | None:
    """What a file of sysfs says, without the end of its line; None where it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
