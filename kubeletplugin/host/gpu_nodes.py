"""Finds the device nodes that open a GPU, or one MIG instance of it and nothing else."""

from __future__ import annotations

from pathlib import Path

from driver.hardware.pci import drm_nodes
from driver.nvml.pci_address import PciAddress
from kubeletplugin.host.capabilities import Capabilities
from kubeletplugin.host.device_nodes import DeviceFolder, DeviceNode


class GpuNodes:
    """The nodes below a driver root, fresh each time: minors move over reboots and resets."""

    def __init__(self, driver_root: Path, sysfs_root: Path) -> None:
        self._driver_root = driver_root
        self._sysfs_root = sysfs_root

    def whole(self, pci: PciAddress, minor: int) -> tuple[DeviceNode, ...]:
        """The node of the GPU with this minor, and its DRM nodes; raises NodeIncomplete."""
        folder = DeviceFolder.below(self._driver_root)
        found = (folder.find(f"/dev/dri/{name}") for name in drm_nodes(self._sysfs_root, pci))
        return (folder.require_gpu(minor), *(node for node in found if node is not None))

    def instance(self, minor: int, gpu_instance_id: int, compute_instance_id: int) -> tuple[DeviceNode, ...]:
        """What opens one compute instance: the DRM nodes would open all of the GPU. Raises NodeIncomplete."""
        folder = DeviceFolder.below(self._driver_root)
        capabilities = Capabilities.below(self._driver_root)
        own = capabilities.nodes(folder, minor, gpu_instance_id, compute_instance_id)
        return (folder.require_gpu(minor), *own)

    def control(self) -> tuple[DeviceNode, ...]:
        """The nodes that every CUDA program needs; raises NodeIncomplete."""
        return DeviceFolder.below(self._driver_root).control()
