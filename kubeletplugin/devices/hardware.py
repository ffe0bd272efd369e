"""The ports to the GPUs of a node and to the rest of its hardware, which the process or a test fills in."""

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
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.modules import read_aliases
from kubeletplugin.devices.vfio.users import FunctionUsers, User
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.sharing.memory.cgroups import Cgroups
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.mps_edits import MpsFolders
from kubeletplugin.sharing.time_slices import TimeSlices

if TYPE_CHECKING:
    from fakegpu.machine.fake_machine import FakeMachine

_SLASH = Path("/")
_HOST = Path("/proc/1/root")
"""The root of the first process: the host's, where this process has the process ids of the host."""

_OWN_SYSFS = Path("/sys")
"""Where a pretended machine has nothing laid: none of its functions is found there."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of the node, and what the NVIDIA driver has installed around them.

    ``driver`` is where the driver is installed now. ``hook`` says where nvidia-cdi-hook comes from;
    ``memory_hook`` is the program that holds containers back until they have their memory limits, None
    without one. ``kernel`` changes PCI functions, ``binder`` gives them other drivers, and ``users`` says who
    has one open. ``controllers`` are those of the node. ``cgroups`` are the control groups of containers, and
    None reads sysfs; ``gpu_reset`` resets GPUs, and None runs the driver's own program.
    """

    discovery: Discovery
    sysfs_root: Path
    driver: InstalledDriver
    time_slices: TimeSlices
    mps: MpsClient
    mps_folders: MpsFolders
    fabric: FabricManager
    kernel: Kernel
    binder: GroupBinder
    users: Users
    controllers: Controllers
    hook: HookSource = NO_HOOK
    memory_hook: Path | None = None
    cgroups: Cgroups | None = None
    gpu_reset: GpuReset | None = None


def pci_ports(nvml: Nvml, roots: DriverRoots, sysfs_root: Path) -> tuple[Kernel, GroupBinder, Users]:
    """The kernel of the node, what binds its functions, and who has one open; pretended if ``nvml`` is."""
    host_root = roots.host_root or _HOST
    aliases = partial(read_aliases, host_root, os.uname().release)
    kernel, users = _of_node(nvml, host_root, sysfs_root)
    return kernel, GroupBinder(kernel, sysfs_root, aliases, users), users


def _of_node(nvml: Nvml, host_root: Path, sysfs_root: Path) -> tuple[Kernel, Users]:
    from fakegpu.nvml.fake_nvml import FakeNvml

    if isinstance(nvml, FakeNvml) and sysfs_root != _OWN_SYSFS:
        from fakegpu.machine.fake_machine import FakeMachine
        from fakegpu.nvml.flag import fake_kernel

        return fake_kernel(nvml, sysfs_root), pretended_users(FakeMachine(nvml.spec, nvml.store))
    from kubeletplugin.devices.host.real_kernel import RealKernel

    return RealKernel(host_root, sysfs_root), FunctionUsers(_SLASH, sysfs_root)


def pretended_users(machine: FakeMachine) -> Users:
    """The processes that a pretended machine has on its GPUs: all its nodes are the null device."""

    def users(function: PciFunction) -> tuple[User, ...]:
        gpu = machine.state.gpus.get(function.pci)
        return tuple(User(pid, "pretended process") for pid in gpu.process_ids) if gpu else ()

    return users
