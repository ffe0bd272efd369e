"""The ports to the GPUs of a node and to what lies around them, as the process or a test fills them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletplugin.claims.cdi.hook_source import NO_HOOK, HookSource

if TYPE_CHECKING:
    from driver.fabric.api import FabricManager
    from driver.hardware.inventory import Discovery
    from kubeletplugin.devices.host.cgroups import Cgroups
    from kubeletplugin.devices.host.installed_driver import InstalledDriver
    from kubeletplugin.devices.host.kernel import Kernel
    from kubeletplugin.devices.vfio.binder import GroupBinder
    from kubeletplugin.devices.vfio.function_files import Users
    from kubeletplugin.kubelet.wire.controllers import Controllers
    from kubeletplugin.reports.healing.gpu_reset import GpuReset
    from kubeletplugin.sharing.mps_client import MpsClient
    from kubeletplugin.sharing.mps_edits import MpsFolders
    from kubeletplugin.sharing.time_slices import TimeSlices


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs of the node and what the driver has laid around them.

    ``driver`` is where the driver is installed now; ``hook`` says where the hook comes from that makes
    containers ready, ``memory_hook`` is the program that holds them back until they have their limits of
    memory, None where there is none. ``kernel`` is told what is to become of PCI functions, ``binder`` gives
    them other drivers, and ``users`` says who has one open. ``controllers`` are those of the node.
    ``cgroups`` are the control groups of containers, those that sysfs shows where nobody pretends any;
    ``gpu_reset`` resets GPUs, the driver's own program where nobody pretends one.
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
