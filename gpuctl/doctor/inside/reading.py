"""Looks at a node: files, device nodes, sockets and GPUs. Changes nothing."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError, DriverError, NvmlError
from gpuctl.doctor.inside.claim_files import read_journal, read_put_aside, read_sharing, read_specs
from gpuctl.doctor.inside.runtime_files import runtime_configs
from gpuctl.doctor.inside.seen import NodeSeen
from gpuctl.doctor.inside.sockets import mps_daemons, plugin_health
from gpuctl.doctor.outside.seen import Unread

if TYPE_CHECKING:
    from driver.hardware.gpu import Inventory
    from gpuctl.doctor.inside.places import Places
    from kubeletplugin.host.driver_files import DriverFiles

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KERNEL_DRIVER = "proc/driver/nvidia/version"
_NVRM = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def look_at_node(places: Places) -> NodeSeen:
    """Look at everything; what cannot be looked at says why."""
    return NodeSeen(
        places=places,
        boot_id=_BOOT_ID.read_text().strip(),
        driver_files=_driver_files(places.driver_root),
        kernel_driver=_kernel_driver(places),
        inventory=_inventory(places),
        device_nodes=_device_nodes(places),
        cgroups=_cgroups(places.host_root),
        runtimes=runtime_configs(places.host_root),
        cdi_writable=_writable(places.cdi_dir),
        journal=read_journal(places.data_dir / "journal"),
        put_aside=read_put_aside(places.data_dir / "journal"),
        specs=read_specs(places.cdi_dir, lambda path: _host_has(places, path)),
        sharing=read_sharing(places.data_dir / "sharing"),
        daemons=mps_daemons(places.mps_dir / "supervisor.sock"),
        plugins={str(socket): plugin_health(socket) for socket in sorted(places.data_dir.glob("dra*.sock"))},
        registrations=tuple(sorted(map(str, places.registry_dir.glob("*-reg.sock")))),
        in_containers=_in_containers(places),
    )


def _driver_files(root: Path) -> DriverFiles | Unread:
    from kubeletplugin.host.driver_files import DriverRoot

    try:
        return DriverRoot(root).files()
    except DriverError as error:
        return Unread(error.what)
    except OSError as error:
        return Unread(f"{root} cannot be read: {error.strerror}")


def _kernel_driver(places: Places) -> str | None:
    """The version of the loaded kernel module, as the driver root or this process sees it."""
    for root in (places.driver_root, Path("/")):
        try:
            found = _NVRM.search((root / _KERNEL_DRIVER).read_text(errors="replace"))
        except OSError:
            continue
        return found[1] if found else None
    return None


def _inventory(places: Places) -> Inventory | Unread:
    """What NVML tells; it is asked for once, and let go."""
    from driver.hardware.inventory import Discovery
    from driver.nvml.deadline import Guard
    from fakegpu.nvml_flag import nvml_from_flag

    guard = Guard()
    try:
        root = None if places.driver_root == Path("/") else places.driver_root
        discovery = Discovery(nvml_from_flag(places.nvml, root), places.sysfs_root, guard)
        try:
            return discovery.snapshot()
        finally:
            discovery.close()
    except (NvmlError, ConfigError) as error:
        return Unread(error.what)
    finally:
        guard.close()


def _device_nodes(places: Places) -> frozenset[str]:
    """The character devices of the driver below the root that has them, by the paths of containers."""
    from kubeletplugin.host.device_nodes import DeviceFolder

    dev = Path(f"{DeviceFolder.below(places.driver_root).root}/dev")
    found = (*dev.glob("nvidia*"), *(dev / "nvidia-caps").glob("nvidia-cap*"))
    return frozenset(f"/dev/{path.relative_to(dev)}" for path in found if _is_character_device(path))


def _host_has(places: Places, path: str) -> bool:
    """Whether the host has a character device at its path, which this process may see elsewhere."""
    seen = [Path(path), places.host_root / path.lstrip("/")]
    if Path(path).is_relative_to(places.host_driver_root):
        seen.append(places.driver_root / Path(path).relative_to(places.host_driver_root))
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
