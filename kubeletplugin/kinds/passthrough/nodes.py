"""Finds the nodes by which a process reaches devices of vfio, as they are now."""

from __future__ import annotations

from pathlib import Path

from driver.errors import NodeIncomplete
from kubeletplugin.host.device_nodes import DeviceFolder, DeviceNode
from kubeletplugin.host.installed_driver import InstalledDriver


class VfioNodes:
    """The nodes below the driver's root, else the host's, else those that this process has.

    A node that hands out GPUs to virtual machines alone has no NVIDIA driver, so no root of it either.
    """

    def __init__(self, driver: InstalledDriver) -> None:
        self._driver = driver

    def group(self, number: int) -> DeviceNode:
        """What opens all of an IOMMU group; raises NodeIncomplete."""
        return self._require(f"/dev/vfio/{number}")

    def device(self, name: str) -> DeviceNode:
        """What opens one function through IOMMUFD: ``vfio3``; raises NodeIncomplete."""
        return self._require(f"/dev/vfio/devices/{name}")

    def api(self, *, iommufd: bool) -> DeviceNode:
        """What a virtual machine's monitor maps its memory with; raises NodeIncomplete."""
        return self._require("/dev/iommu" if iommufd else "/dev/vfio/vfio")

    def _require(self, path: str) -> DeviceNode:
        for root in self.roots():
            node = DeviceFolder(root).find(path)
            if node is not None:
                return node
        raise NodeIncomplete(
            f"the device node {path} is missing",
            "look at the module of vfio in the kernel's log; the plugin needs the host's /dev",
        )

    def roots(self) -> tuple[str, ...]:
        """Below which folders nodes are looked for, in this order, without a slash at the end."""
        roots = [self._driver.host_root, Path("/")]
        try:
            roots.insert(0, self._driver.now().path)
        except NodeIncomplete:
            pass
        return tuple(dict.fromkeys(str(root).rstrip("/") for root in roots if root is not None))
