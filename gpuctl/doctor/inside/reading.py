"""Looks at a node: files, device nodes, sockets and GPUs. Changes nothing."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import Literal

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError, DriverError, NodeIncomplete, NvmlError
from driver.hardware.gpu import Inventory
from driver.hardware.pci_view import pci_view
from driver.nvml.api import NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.memory_limits import MemoryLimits
from driver.roots.driver_roots import DriverRoots
from driver.roots.probe import loaded_version
from driver.roots.root import Root
from gpuctl.doctor.inside.claim_files import (
    HOOK,
    hook_seen,
    is_group,
    named_hooks,
    read_journal,
    read_ledger,
    read_noted_partitions,
    read_put_aside,
    read_sharing,
    read_specs,
    sockets_seen,
)
from gpuctl.doctor.inside.machine_files import kernel_seen
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.runtime_files import runtime_configs
from gpuctl.doctor.inside.seen import FabricSeen, LimitSeen, MemorySeen, NodeSeen
from gpuctl.doctor.inside.sockets import mps_daemons, plugin_health
from gpuctl.doctor.outside.seen import Unread
from kubeletplugin.devices.host.driver_files import DriverFiles
from kubeletplugin.kubelet.wire.names import claim_of_cdi_spec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def look_at_node(places: Places) -> NodeSeen:
    """Look at everything; what cannot be looked at says why. Raises ConfigError for flags that cannot be."""
    roots = places.roots()
    looked, root = roots.look(), roots.state()[0]
    journal = read_journal(places.data_dir / "journal")
    if root is None and len(looked) == 1:  # the one that was named, whether a driver lies there or not
        root = roots.current()
    return NodeSeen(
        places=places,
        boot_id=_BOOT_ID.read_text().strip(),
        looked=looked,
        driver_files=_driver_files(root),
        kernel_driver=loaded_version(places.sysfs_root),
        gpus_on_bus=len(pci_view(places.sysfs_root).physical),
        inventory=_inventory(places, roots),
        device_nodes=_device_nodes(places, root),
        cgroups=_cgroups(places.host_root),
        runtimes=runtime_configs(places.host_root),
        cdi_writable=_writable(places.cdi_dir),
        journal=journal,
        put_aside=read_put_aside(places.data_dir / "journal"),
        specs=read_specs(places.cdi_dir, lambda path: _host_has(places, root, path)),
        sharing=read_sharing(places.data_dir / "sharing"),
        daemons=mps_daemons(places.mps_dir / "supervisor.sock"),
        plugins={str(socket): plugin_health(socket) for socket in sorted(places.data_dir.glob("dra*.sock"))},
        registrations=tuple(sorted(map(str, places.registry_dir.glob("*-reg.sock")))),
        in_containers=_in_containers(places),
        fabric=_fabric(places, roots),
        memory=_memory(places, roots),
        kernel=kernel_seen(places, [*([root.seen] if root else []), places.host_root], journal),
    )


def _driver_files(root: Root | None) -> DriverFiles | Unread:
    from kubeletplugin.devices.host.driver_files import DriverRoot

    if root is None:
        return Unread("no NVIDIA driver was found on this node")
    try:
        return DriverRoot(root).files()
    except DriverError as error:
        return Unread(error.what)
    except OSError as error:
        return Unread(f"{root.seen} cannot be read: {error.strerror}")


def _inventory(places: Places, roots: DriverRoots) -> Inventory | Unread:
    """What NVML says; it is initialised once and shut down."""
    from driver.hardware.inventory import Discovery
    from driver.nvml.deadline import Guard
    from fakegpu.nvml.flag import nvml_from_flag

    guard = Guard()
    try:
        discovery = Discovery(nvml_from_flag(places.nvml, roots), places.sysfs_root, guard)
        try:
            return discovery.snapshot()
        finally:
            discovery.close()
    except (NvmlError, ConfigError, NodeIncomplete) as error:
        return Unread(error.what)
    finally:
        guard.close()


def _fabric(places: Places, roots: DriverRoots) -> FabricSeen:
    """What the fabric manager says, and the records of the plugin."""
    from driver.fabric.api import FabricError, NotShared
    from fakegpu.nvml.flag import fabric_from_flag

    noted = read_noted_partitions(places.data_dir / "fabric")
    try:
        manager = fabric_from_flag(places.nvml, roots)
        return FabricSeen(None if manager.instance() is None else manager.partitions(), noted)
    except NotShared:
        return FabricSeen(None, noted)
    except (FabricError, ConfigError) as error:
        return FabricSeen(Unread(error.what), noted)


def _memory(places: Places, roots: DriverRoots) -> MemorySeen:
    """What holds containers to their memory; NVML is asked for the limits of those that live."""
    from kubeletplugin.kubelet.wire.server import is_answered

    data, host_root = places.data_dir, places.host_root
    limits, wrong = _limits(places, roots)
    named = named_hooks(places.cdi_dir, lambda name: claim_of_cdi_spec(name) is not None)
    seen = {path: Path(path) if Path(path).exists() else host_root / path.lstrip("/") for path in named}
    copies = sorted((data / "hook").glob(f"*/{HOOK}"))
    return MemorySeen(
        limits,
        wrong,
        tuple(hook_seen(path, seen[path]) for path in sorted(named)),
        tuple(hook_seen(str(copy), copy) for copy in copies),
        sockets_seen(data / "memory" / "sockets", is_answered),
    )


def _limits(places: Places, roots: DriverRoots) -> tuple[tuple[LimitSeen, ...], tuple[str, ...]]:
    """The ledger of limits, with what NVML says of each; files that cannot be read."""
    from driver.hardware.inventory import Discovery
    from driver.nvml.api import NoMemoryLimits
    from driver.nvml.deadline import Guard
    from driver.nvml.pci_address import PciAddress
    from fakegpu.nvml.flag import nvml_from_flag, pretended_cgroups

    folder = places.data_dir / "memory" / "claims"
    if not folder.is_dir():
        return (), ()
    guard = Guard()
    try:
        nvml = nvml_from_flag(places.nvml, roots)
        discovery, pretended = Discovery(nvml, places.sysfs_root, guard), pretended_cgroups(nvml)

        def ask(pci: str, cgroup: str) -> MemoryLimits | None:
            def job(device: NvmlDevice, watch: Watch) -> MemoryLimits:
                return watch("memory_limits", lambda: device.memory_limits(cgroup))

            try:
                return discovery.on_gpu(PciAddress.parse(pci), job)
            except NoMemoryLimits:
                return None

        try:
            groups = places.sysfs_root / "fs/cgroup"
            is_there = partial(is_group, groups) if pretended is None else pretended.is_there
            return read_ledger(folder, _BOOT_ID.read_text().strip(), is_there, ask)
        finally:
            discovery.close()
    except ConfigError as error:
        return (), (error.what,)
    finally:
        guard.close()


def _device_nodes(places: Places, root: Root | None) -> frozenset[str]:
    """The character devices of the driver below the root that has them, by the paths of containers."""
    from kubeletplugin.devices.host.device_nodes import DeviceFolder

    roots = ([root.seen] if root else []) + [places.host_root]
    dev = Path(f"{DeviceFolder.below(*roots).root}/dev")
    found = (*dev.glob("nvidia*"), *(dev / "nvidia-caps").glob("nvidia-cap*"))
    return frozenset(f"/dev/{path.relative_to(dev)}" for path in found if _is_character_device(path))


def _host_has(places: Places, root: Root | None, path: str) -> bool:
    """Whether the host has a character device at its path, which this process may see elsewhere."""
    seen = [Path(path), places.host_root / path.lstrip("/")]
    if root is not None and Path(path).is_relative_to(root.on_host):
        seen.append(root.seen / Path(path).relative_to(root.on_host))
    return any(map(_is_character_device, seen))


def _is_character_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _cgroups(host_root: Path) -> Literal[1, 2] | None:
    folder = host_root / "sys/fs/cgroup"
    if (folder / "cgroup.controllers").exists():
        return 2
    return 1 if (folder / "devices").is_dir() else None


def _writable(folder: Path) -> bool | Unread:
    """Whether files can be made in a folder by this process; no file is made to find out."""
    if not folder.is_dir():
        return Unread(f"there is no folder {folder}")
    return os.access(folder, os.W_OK | os.X_OK)


def _in_containers(places: Places) -> frozenset[str] | Unread:
    from kubeletplugin.kubelet.podresources import devices_in_use

    socket = places.pod_resources_socket
    if not socket.exists():
        return Unread(f"the kubelet's socket {socket} is not seen from here")
    try:
        return devices_in_use(socket, DRIVER_NAME)
    except DriverError as error:
        return Unread(error.what)
