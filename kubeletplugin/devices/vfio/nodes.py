"""The device nodes by which processes use a function, with the NVIDIA driver and with vfio."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from driver.hardware.pci import drm_nodes
from kubeletplugin.devices.vfio.users import PROC, users_of

if TYPE_CHECKING:
    from driver.hardware.functions import PciFunction
    from kubeletplugin.devices.vfio.users import User

_MINOR = re.compile(r"^Device Minor:[ \t]*([0-9]{1,4})[ \t]*$", re.MULTILINE | re.ASCII)


class FunctionUsers:
    """Says who has a function open. ``device_root`` has the node's ``dev`` and ``proc`` below it."""

    def __init__(self, device_root: Path, sysfs_root: Path, proc: Path = PROC) -> None:
        self._device_root = device_root
        self._sysfs_root = sysfs_root
        self._proc = proc

    def __call__(self, function: PciFunction) -> tuple[User, ...]:
        """The processes, sorted by their ids; none where the function has no nodes."""
        return users_of(self.nodes(function), self._proc)

    def nodes(self, function: PciFunction) -> Iterator[Path]:
        """Where the function's nodes are or would be, whoever holds it now.

        A driver that is to let go loses its name first. A legacy group has one node for its functions.
        """
        devices = self._device_root / "dev"
        if function.iommu_group is not None:
            yield devices / "vfio" / str(function.iommu_group)
        if function.vfio_device is not None:
            yield devices / "vfio" / "devices" / function.vfio_device
        information = self._device_root / "proc/driver/nvidia/gpus" / str(function.pci) / "information"
        try:
            minor = _MINOR.search(information.read_text(errors="replace"))
        except OSError:
            minor = None
        if minor is not None:
            yield devices / f"nvidia{minor[1]}"
        for name in drm_nodes(self._sysfs_root, function.pci):
            yield devices / "dri" / name
