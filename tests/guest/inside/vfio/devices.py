"""The devices of the guest by their addresses, and what a test does with them."""

import errno
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driver.hardware.pci import bound_driver
from driver.nvml.pci_address import PciAddress
from kubeletplugin.devices.host.kernel import Kernel, RealKernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Deadlines, Users
from kubeletplugin.devices.vfio.modules import read_aliases
from kubeletplugin.devices.vfio.users import FunctionUsers

SYSFS, HOST = Path("/sys"), Path("/")
DEVICES = SYSFS / "bus/pci/devices"

NETWORK, RANDOM, USB = "0000:00:05.0", "0000:00:05.1", "0000:00:05.2"
BRIDGE, BEHIND, WITHOUT_DRIVER = "0000:00:06.0", "0000:01:01.0", "0000:01:02.0"
NVME, NVME_VIRTUAL = "0000:02:00.0", "0000:02:00.1"
UNGUARDED = "0000:41:00.0"

OWN_DRIVERS = {
    NETWORK: "e1000",
    RANDOM: "virtio-pci",
    USB: "xhci_hcd",
    BEHIND: "e1000",
    WITHOUT_DRIVER: "",
    NVME: "nvme",
}
MODULES = ("e1000", "xhci_pci", "nvme")

SOON = 10.0
"""What the kernel answers at all it answers within so many seconds."""

_VFIO = ord(";") << 8
_GROUP_STATUS, _VIABLE = _VFIO | 103, 1

HOLD = """
import fcntl, os, struct, sys
group, address, vfio = sys.argv[1], sys.argv[2], ord(";") << 8
container, opened = os.open("/dev/vfio/vfio", os.O_RDWR), os.open(group, os.O_RDWR)
fcntl.ioctl(opened, vfio | 104, struct.pack("i", container))
fcntl.ioctl(container, vfio | 102, 1)
device = fcntl.ioctl(opened, vfio | 106, bytearray(address.encode() + b"\\0"))
print("open", flush=True)
sys.stdin.read()
"""
"""A program that opens a device by vfio as QEMU does (linux/vfio.h), until its stdin ends."""


def at(address: str) -> PciAddress:
    """The address."""
    return PciAddress.parse(address)


def driver(address: str) -> str:
    """The driver of a function, empty for none."""
    return bound_driver(SYSFS, at(address)) or ""


def override(address: str) -> str:
    """Its ``driver_override`` as the kernel writes it."""
    return overrides([address])[0]


def overrides(addresses: Collection[str]) -> list[str]:
    """Those of several functions. A child reads them: who reads one of a function in doubt never returns."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        found = [(DEVICES / address / "driver_override").read_text().strip() for address in addresses]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:  # noqa: PTH123 - it is a number
        assert select.select([answer], [], [], SOON)[0], f"one of {addresses} is in doubt"
        return list(json.load(answer))


def state(addresses: Collection[str] = tuple(OWN_DRIVERS)) -> dict[str, tuple[str, str]]:
    """Driver and override of functions."""
    found = zip(addresses, overrides(addresses), strict=True)
    return {address: (driver(address), name) for address, name in found}


def group_number(address: str) -> str:
    """The IOMMU group of a function."""
    return (DEVICES / address / "iommu_group").readlink().name


def group_node(address: str) -> Path:
    """The device node of its group."""
    return Path("/dev/vfio", group_number(address))


def is_viable(address: str) -> bool:
    """Whether vfio would give the group to a virtual machine."""
    opened = os.open(group_node(address), os.O_RDWR)
    try:
        status = bytearray(struct.pack("II", 8, 0))
        fcntl.ioctl(opened, _GROUP_STATUS, status)
        return bool(struct.unpack("II", status)[1] & _VIABLE)
    finally:
        os.close(opened)


@contextmanager
def opened_by_vfio(address: str, node: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the device open as a virtual machine has it; it ends with the block.

    It opens the group by ``node`` where that is given.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLD, str(node or group_node(address)), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    try:
        yield process
    finally:
        process.communicate()


def refused(write: Any, *arguments: Any) -> str:
    """The name of the number with which the kernel refuses, empty where it does not."""
    try:
        write(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


class Journal:
    """A record on a file, as the plugin's journal keeps it: it is what a process after this one finds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.steps: list[str] = []

    def note(self, step: str, record: Mapping[str, Any]) -> None:
        """Write the record down."""
        self.steps.append(step)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(record))
        new.replace(self.file)

    @property
    def record(self) -> Mapping[str, Any]:
        """What was written down last."""
        return json.loads(self.file.read_text()) if self.file.exists() else {}


def binder(
    kernel: Kernel | None = None, users: Users | None = None, deadlines: Deadlines | None = None
) -> GroupBinder:
    """The binder as the plugin has it."""
    return GroupBinder(
        kernel or RealKernel(HOST, SYSFS),
        SYSFS,
        lambda: read_aliases(HOST, os.uname().release),
        users or FunctionUsers(HOST, SYSFS),
        deadlines,
    )
