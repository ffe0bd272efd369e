"""Reads a node: files, device nodes, sockets and GPUs. Changes nothing."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from driver.devices.names import DRIVER_NAME
from driver.errors import ConfigError, DriverError, NodeIncomplete, NvmlError
from driver.fabric.api import FabricError, NotShared
from driver.hardware.gpu import Inventory
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import pci_view
from driver.nvml.api import NoMemoryLimits, Nvml, NvmlDevice
from driver.nvml.deadline import Guard, Watch
from driver.nvml.memory_limits import MemoryLimits
from driver.nvml.pci_address import PciAddress
from driver.process.boot import boot_folder
from driver.roots.driver_roots import DriverRoots
from driver.roots.probe import loaded_version
from driver.roots.root import Root
from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag, pretended_cgroups
from gpuctl.cli.unread import Unread
from gpuctl.doctor.inside import claim_files
from gpuctl.doctor.inside.machine_files import kernel_seen
from gpuctl.doctor.inside.places import Places
from gpuctl.doctor.inside.runtime_files import runtime_configs
from gpuctl.doctor.inside.seen import FabricSeen, LimitSeen, MemorySeen, NodeSeen
from gpuctl.doctor.inside.sockets import mps_daemons, plugin_health
from kubeletplugin.devices.host.driver_files import DriverFiles, DriverRoot, InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.host.gpu_nodes import DeviceFolder, GpuNodes, HostNow
from kubeletplugin.devices.host.imex import Imex
from kubeletplugin.kubelet.podresources import devices_in_use
from kubeletplugin.kubelet.wire.server import is_answered


def look_at_node(places: Places) -> NodeSeen:
    """Read everything; what cannot be read says why. Raises ConfigError for contradictory flags."""
    roots = places.roots()
    looked, root = roots.look(), roots.state()[0]
    boot = boot_folder(places.data_dir)
    journal = claim_files.read_journal(boot / "journal")
    # A single place is the one of --driver-root: what lies there is shown even if it is no working driver.
    if root is None and len(looked) == 1:
        root = roots.current()
    inventory = _inventory(places, roots)
    return NodeSeen(
        places=places,
        looked=looked,
        driver_files=_driver_files(root),
        kernel_driver=loaded_version(places.sysfs_root),
        gpus_on_bus=len(pci_view(places.sysfs_root).physical),
        inventory=inventory,
        device_nodes=_device_nodes(places, root),
        cgroups=_cgroups(places.host_root),
        runtimes=runtime_configs(places.host_root),
        cdi_writable=_writable(places.cdi_dir),
        journal=journal,
        put_aside=claim_files.read_put_aside(boot / "journal"),
        specs=claim_files.read_specs(places.cdi_dir, lambda path: _host_has(places, root, path)),
        sharing=claim_files.read_sharing(boot / "sharing"),
        daemons=mps_daemons(places.mps_dir / "supervisor.sock"),
        plugins={str(socket): plugin_health(socket) for socket in sorted(places.data_dir.glob("dra*.sock"))},
        registrations=tuple(sorted(map(str, places.registry_dir.glob("*-reg.sock")))),
        in_containers=_in_containers(places),
        fabric=_fabric(places, roots),
        memory=_memory(places, roots),
        no_channels=_no_channels(places, roots, inventory),
        kernel=kernel_seen(places, [*([root.seen] if root else []), places.host_root], journal),
    )


def _driver_files(root: Root | None) -> DriverFiles | Unread:

    if root is None:
        return Unread("no NVIDIA driver was found on this node")
    try:
        return DriverRoot(root).files()
    except DriverError as error:
        return Unread(error.what)
    except OSError as error:
        return Unread(f"{root.seen} cannot be read: {error.strerror}")


@contextmanager
def _discovery(places: Places, nvml: Nvml) -> Iterator[Discovery]:
    """Asks NVML about GPUs until the block ends."""
    # A call into a broken GPU may never return: the guard makes it in a thread and gives up waiting.
    guard = Guard()
    try:
        discovery = Discovery(nvml, places.sysfs_root, guard)
        try:
            yield discovery
        finally:
            # An open session keeps each GPU in use, so that nobody could reset it or unload its driver.
            discovery.close()
    finally:
        guard.close()


def _inventory(places: Places, roots: DriverRoots) -> Inventory | Unread:
    """The GPUs as NVML shows them."""
    try:
        with _discovery(places, nvml_from_flag(places.nvml, roots)) as discovery:
            return discovery.snapshot()
    except (NvmlError, ConfigError, NodeIncomplete) as error:
        return Unread(error.what)


def _fabric(places: Places, roots: DriverRoots) -> FabricSeen:
    """The fabric manager's partitions, and the plugin's records of them."""
    noted = claim_files.read_noted_partitions(boot_folder(places.data_dir) / "fabric")
    try:
        manager = fabric_from_flag(places.nvml, roots)
        # Without a fabric manager at its socket there is no instance.
        return FabricSeen(None if manager.instance() is None else manager.partitions(), noted)
    except NotShared:
        return FabricSeen(None, noted)
    except (FabricError, ConfigError) as error:
        return FabricSeen(Unread(error.what), noted)


def _no_channels(places: Places, roots: DriverRoots, inventory: Inventory | Unread) -> DriverError | None:
    """What would keep a claim for an IMEX channel waiting; None on a node of no NVLink clique."""
    if isinstance(inventory, Unread) or not any(gpu.fabric_clique for gpu in inventory.gpus):
        return None
    driver, socket = InstalledDriver(roots), places.host_root / str(places.imex_socket).lstrip("/")
    try:
        with tempfile.TemporaryDirectory() as links:
            GpuNodes(places.sysfs_root).channel(1, HostNow(driver))
            Imex(DriverPrograms(driver, Path(links)), socket).check()
    except DriverError as error:
        return error
    return None


def _memory(places: Places, roots: DriverRoots) -> MemorySeen:
    """How memory limits are enforced; NVML is asked for the limits of running containers."""
    data, host_root = places.data_dir, places.host_root
    limits, wrong = _limits(places, roots)
    named = claim_files.named_hooks(places.cdi_dir)
    # The plugin's folder is mounted at the host's own path in its pod; elsewhere the host's root is needed.
    seen = {path: Path(path) if Path(path).exists() else host_root / path.lstrip("/") for path in named}
    copies = sorted((data / "hook").glob(f"*/{claim_files.HOOK}"))
    return MemorySeen(
        limits,
        wrong,
        tuple(claim_files.hook_seen(path, seen[path]) for path in sorted(named)),
        tuple(claim_files.hook_seen(str(copy), copy) for copy in copies),
        claim_files.sockets_seen(data / "memory" / "sockets", is_answered),
    )


def _limits(places: Places, roots: DriverRoots) -> tuple[tuple[LimitSeen, ...], tuple[str, ...]]:
    """The limits in the ledger, each with NVML's answer, and the files of the ledger that cannot be read."""
    folder = boot_folder(places.data_dir) / "memory"
    if not folder.is_dir():
        return (), ()
    try:
        nvml = nvml_from_flag(places.nvml, roots)
    except ConfigError as error:
        return (), (error.what,)
    pretended = pretended_cgroups(nvml)
    groups = places.sysfs_root / "fs/cgroup"
    is_there = partial(claim_files.is_group, groups) if pretended is None else pretended.is_there
    with _discovery(places, nvml) as discovery:

        def ask(pci: str, cgroup: str) -> MemoryLimits | None:
            def job(device: NvmlDevice, watch: Watch) -> MemoryLimits:
                return watch("memory_limits", lambda: device.memory_limits(cgroup))

            try:
                return discovery.on_gpu(PciAddress.parse(pci), job)
            except NoMemoryLimits:
                return None

        return claim_files.read_ledger(folder, is_there, ask)


def _device_nodes(places: Places, root: Root | None) -> frozenset[str]:
    """The character devices of the NVIDIA driver, by their paths in containers."""

    roots = ([root.seen] if root else []) + [places.host_root]
    dev = Path(f"{DeviceFolder.below(*roots).root}/dev")
    found = (*dev.glob("nvidia*"), *(dev / "nvidia-caps").glob("nvidia-cap*"))
    return frozenset(f"/dev/{path.relative_to(dev)}" for path in found if _is_character_device(path))


def _host_has(places: Places, root: Root | None, path: str) -> bool:
    """Whether the host has a character device at a path of its own."""
    # This process may be in a container, where the host's /dev lies below the host's root or the driver's.
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
    # Only version 2 has this file at its root; version 1 has a folder for each controller instead.
    if (folder / "cgroup.controllers").exists():
        return 2
    return 1 if (folder / "devices").is_dir() else None


def _writable(folder: Path) -> bool | Unread:
    """Whether this process can make files in a folder; it makes none to find out."""
    if not folder.is_dir():
        return Unread(f"there is no folder {folder}")
    return os.access(folder, os.W_OK | os.X_OK)


def _in_containers(places: Places) -> frozenset[str] | Unread:
    socket = places.pod_resources_socket
    if not socket.exists():
        return Unread(f"the kubelet's socket {socket} cannot be seen from here")
    try:
        return devices_in_use(socket, DRIVER_NAME)
    except DriverError as error:
        return Unread(error.what)
