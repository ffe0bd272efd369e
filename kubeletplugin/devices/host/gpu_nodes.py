"""Finds the device nodes that open a GPU, or one MIG instance of it and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.hardware.pci import drm_folder, drm_nodes
from driver.nvml.pci_address import PciAddress
from driver.process.stamp import Stamp, stamp_of
from kubeletplugin.devices.host.capabilities import Capabilities
from kubeletplugin.devices.host.device_nodes import DeviceFolder, DeviceNode
from kubeletplugin.devices.host.installed_driver import InstalledDriver
from kubeletplugin.devices.host.library_files import Link
from kubeletplugin.devices.host.uvm_nodes import make_uvm_nodes

_DRM = "/dev/dri/"

Nodes = tuple[DeviceNode, ...]

_MISSING = (0, 0, 0)


class FolderStamps:
    """The stamps of folders, for one call: each folder is looked at once."""

    def __init__(self) -> None:
        self._found: dict[str, Stamp | None] = {}

    def of(self, folders: tuple[str, ...]) -> tuple[Stamp, ...] | None:
        """The stamp of each folder, None while one is too young to tell two changes apart."""
        stamps = [self._of(folder) for folder in folders]
        return None if None in stamps else tuple(stamp for stamp in stamps if stamp is not None)

    def _of(self, folder: str) -> Stamp | None:
        if folder not in self._found:
            try:
                self._found[folder] = stamp_of(folder)
            except OSError:
                self._found[folder] = _MISSING
        return self._found[folder]


class GpuNodes:
    """The nodes below the driver's root, else the host's: minors move over reboots and resets.

    What lies in a folder is looked for anew once the folder has changed. A node gets other numbers only by
    being made anew, which changes its folder.
    """

    def __init__(self, driver: InstalledDriver, sysfs_root: Path) -> None:
        self._driver = driver
        self._sysfs_root = sysfs_root
        self._known: dict[str, tuple[tuple[Stamp, ...], Nodes]] = {}

    def whole(self, pci: PciAddress, minor: int, stamps: FolderStamps) -> Nodes:
        """The node of the GPU with this minor, and its DRM nodes; raises NodeIncomplete."""

        roots = self._roots()

        def find() -> Nodes:
            folder = DeviceFolder.below(*roots)
            found = (folder.find(f"/dev/dri/{name}") for name in drm_nodes(self._sysfs_root, pci))
            return (folder.require_gpu(minor), *(node for node in found if node is not None))

        folders = (*_folders(roots, "dev"), *_folders(roots, "dev/dri"), drm_folder(self._sysfs_root, pci))
        return self._unless_changed(f"{roots[0]} {pci} {minor}", stamps.of(folders), find)

    def instance(self, minor: int, gpu_instance_id: int, compute_instance_id: int) -> Nodes:
        """What opens one compute instance: the DRM nodes would open all of the GPU. Raises NodeIncomplete."""
        roots = self._roots()
        folder = DeviceFolder.below(*roots)
        capabilities = Capabilities.below(roots[0])
        own = capabilities.nodes(folder, minor, gpu_instance_id, compute_instance_id)
        return (folder.require_gpu(minor), *own)

    def control(self, stamps: FolderStamps) -> Nodes:
        """The nodes that every CUDA program needs, made where nobody has; raises NodeIncomplete."""
        roots = self._roots()

        def find() -> Nodes:
            folder = DeviceFolder.below(*roots)
            make_uvm_nodes(folder)
            return folder.control()

        return self._unless_changed(f"{roots[0]} control", stamps.of(_folders(roots, "dev")), find)

    def _roots(self) -> tuple[Path, ...]:
        """Below which nodes are looked for, in this order, before those of this process."""
        root, host_root = self._driver.now().path, self._driver.host_root
        return (root,) if host_root in (None, root) else (root, host_root)

    def _unless_changed(self, key: str, stamps: tuple[Stamp, ...] | None, find: Callable[[], Nodes]) -> Nodes:
        """What was found before, unless one of the folders has changed; several threads may call it.

        ``stamps`` were taken before anything is looked for, so that a change meanwhile is seen later.
        """
        known = self._known.get(key)
        if known is not None and known[0] == stamps:
            return known[1]
        found = find()
        if stamps is not None:
            self._known[key] = stamps, found
        return found


def drm_links(pci: PciAddress, nodes: Nodes) -> tuple[Link, ...]:
    """The links to a GPU's DRM nodes by its address, as udev makes them (60-drm.rules)."""
    names = (node.path.removeprefix(_DRM) for node in nodes if node.path.startswith(_DRM))
    return tuple(
        Link(f"{_DRM}by-path/pci-{pci}-{'card' if name.startswith('card') else 'render'}", f"../{name}")
        for name in names
    )


def _folders(roots: tuple[Path, ...], name: str) -> tuple[str, ...]:
    """The folders of that name below the roots, and this process's own."""
    return tuple(dict.fromkeys((*(f"{str(root).rstrip('/')}/{name}" for root in roots), f"/{name}")))
