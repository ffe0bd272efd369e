"""Finds the nodes by which a process reaches devices of vfio, as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from driver.errors import NodeIncomplete
from kubeletplugin.devices.host.device_nodes import DeviceFolder, DeviceNode
from kubeletplugin.devices.host.installed_driver import InstalledDriver


class VfioNodes:
    """The nodes below the driver's root, else the host's, else those that this process has.

    A node that hands out GPUs to virtual machines alone has no NVIDIA driver, so no root of it either.
    """

    def __init__(self, driver: InstalledDriver) -> None:
        self._driver = driver

    def of_group(self, number: int, *, with_api: bool) -> tuple[DeviceNode, ...]:
        """What opens all of an IOMMU group, and with ``with_api`` what a monitor maps its memory with.

        Raises NodeIncomplete.
        """
        paths = [f"/dev/vfio/{number}", *(["/dev/vfio/vfio"] if with_api else [])]
        found = {path: self._find(path) for path in paths}
        missing = [path for path, node in found.items() if node is None]
        if missing:
            raise NodeIncomplete(
                f"the device node {missing[0]} is missing",
                "look for vfio in the kernel log (dmesg); the plugin needs the host's /dev",
            )
        return tuple(node for node in found.values() if node is not None)

    def of_iommufd(self, names: Sequence[str | None], *, with_api: bool) -> tuple[DeviceNode, ...] | None:
        """The same through IOMMUFD, a node for each function; None where this kernel does not have it.

        ``names`` are the functions' (``vfio3``), None for one without. Linux has /dev/iommu since 6.2, and
        the nodes of devices since 6.6 (CONFIG_VFIO_DEVICE_CDEV).
        """
        api = self._find("/dev/iommu")
        devices = [self._find(f"/dev/vfio/devices/{name}") if name else None for name in names]
        if api is None or not devices or None in devices:
            return None
        return (*(node for node in devices if node is not None), *([api] if with_api else []))

    def _find(self, path: str) -> DeviceNode | None:
        found = (DeviceFolder(root).find(path) for root in self.roots())
        return next((node for node in found if node is not None), None)

    def roots(self) -> tuple[str, ...]:
        """Below which folders nodes are looked for, in this order, without a slash at the end."""
        roots = [self._driver.host_root, Path("/")]
        with suppress(NodeIncomplete):
            roots.insert(0, self._driver.now().path)
        return tuple(dict.fromkeys(str(root).rstrip("/") for root in roots if root is not None))
