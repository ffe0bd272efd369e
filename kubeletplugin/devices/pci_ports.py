"""Chooses the kernel that binds PCI functions, and who knows their users: those of the node, or pretended."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driver.roots.driver_roots import DriverRoots
from kubeletplugin.devices.vfio.aliases import read_aliases
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.nodes import FunctionUsers
from kubeletplugin.devices.vfio.users import User

if TYPE_CHECKING:
    from driver.hardware.functions import PciFunction
    from driver.nvml.api import Nvml
    from fakegpu.machine.fake_machine import FakeMachine
    from kubeletplugin.devices.host.kernel import Kernel

_SLASH = Path("/")
_HOST = Path("/proc/1/root")
"""The root of the first process: the host's, where this process has the process ids of the host."""

_OWN_SYSFS = Path("/sys")
"""Where a pretended machine has nothing laid: none of its functions is found there."""


def pci_ports(nvml: Nvml, roots: DriverRoots, sysfs_root: Path) -> tuple[Kernel, GroupBinder, Users]:
    """The kernel of the node whose GPUs ``nvml`` looks at, what binds its functions, and who has one open."""
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
    """The processes that a pretended machine says to run on its GPUs: its nodes are all the null device."""

    def users(function: PciFunction) -> tuple[User, ...]:
        gpu = machine.state.gpus.get(function.pci)
        return tuple(User(pid, "pretended process") for pid in gpu.process_ids) if gpu else ()

    return users
