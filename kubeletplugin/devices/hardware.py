"""Everything of the node's hardware that the plugin works with; the process or a test provides it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driver.fabric.api import FabricManager
from driver.hardware.functions import PciFunction
from driver.hardware.inventory import Discovery
from driver.nvml.api import Nvml
from driver.roots.driver_roots import DriverRoots
from kubeletplugin.claims.cdi.hook import NO_HOOK, HookSource
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.imex import Imex
from kubeletplugin.devices.host.kernel import Kernel, RealKernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.modules import read_aliases
from kubeletplugin.devices.vfio.users import FunctionUsers, User
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.sharing.memory.cgroups import Cgroups
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.shares import MpsFolders
from kubeletplugin.sharing.time_slices import TimeSlices

if TYPE_CHECKING:
    from fakegpu.machine.fake_machine import FakeMachine

_SLASH = Path("/")
_HOST = Path("/proc/1/root")
"""The root folder of process 1. It is the host's root, since the pod shares the host's process ids."""

_OWN_SYSFS = Path("/sys")
"""The real sysfs. A pretended machine has its PCI functions in a folder of its own, never here."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of the node, and what the NVIDIA driver has installed around them."""

    discovery: Discovery
    sysfs_root: Path
    # Where the driver is installed now.
    driver: InstalledDriver
    time_slices: TimeSlices
    mps: MpsClient
    mps_folders: MpsFolders
    fabric: FabricManager
    # Changes PCI functions.
    kernel: Kernel
    # Binds PCI functions to other drivers.
    binder: GroupBinder
    # Lists the processes that have a PCI function open.
    users: Users
    # The node's controllers that are connected.
    controllers: Controllers
    # The daemon nvidia-imex of the host.
    imex: Imex
    # Where nvidia-cdi-hook comes from.
    hook: HookSource = NO_HOOK
    # The program that keeps a container from starting until its memory limits are set; None without one.
    memory_hook: Path | None = None
    # The control groups of containers; None reads sysfs.
    cgroups: Cgroups | None = None
    # Resets GPUs; None runs nvidia-smi.
    gpu_reset: GpuReset | None = None


def pci_ports(nvml: Nvml, roots: DriverRoots, sysfs_root: Path) -> tuple[Kernel, GroupBinder, Users]:
    """The kernel, the binder of PCI functions, and the lookup of their users; pretended if ``nvml`` is."""
    host_root = roots.host_root or _HOST
    # A container runs on the host's kernel, so uname names the release whose modules the host has.
    aliases = partial(read_aliases, host_root, os.uname().release)
    kernel, users = _kernel_and_users(nvml, host_root, sysfs_root)
    return kernel, GroupBinder(kernel, sysfs_root, aliases, users), users


def _kernel_and_users(nvml: Nvml, host_root: Path, sysfs_root: Path) -> tuple[Kernel, Users]:
    from fakegpu.nvml.fake_nvml import FakeNvml

    if isinstance(nvml, FakeNvml) and sysfs_root != _OWN_SYSFS:
        from fakegpu.machine.fake_machine import FakeMachine
        from fakegpu.nvml.flag import fake_kernel

        return fake_kernel(nvml, sysfs_root), pretended_users(FakeMachine(nvml.spec, nvml.store))
    return RealKernel(host_root, sysfs_root), FunctionUsers(_SLASH, sysfs_root)


def pretended_users(machine: FakeMachine) -> Users:
    """The processes that a pretended machine has on its GPUs.

    Its device nodes are all the null device, so open files cannot tell its GPUs apart.
    """

    def users(function: PciFunction) -> tuple[User, ...]:
        gpu = machine.state.gpus.get(function.pci)
        return tuple(User(pid, "pretended process") for pid in gpu.process_ids) if gpu else ()

    return users
