"""What the plugin tells the kernel: writes into sysfs, and modules to be loaded.

Reading needs no port: what is read is plain files below the root of sysfs. The pretend kernel of
``fakegpu.sysfs`` answers the same calls for a pretend node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Kernel(Protocol):
    """The kernel of the node."""

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs, such as ``<sysfs root>/bus/pci/drivers/nvidia/unbind``, in one call.

        The kernel may act for as long as it likes, so the write is done by a child. Raises OSError with the
        kernel's own number (EBUSY, ENODEV, EINVAL, ENOENT), TimeoutError when it did not return in time: the
        write is still under way then, and may yet succeed.
        """
        ...

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Have a kernel module loaded, such as ``vfio-pci``; one that is there already is fine.

        Raises OSError where there is no such module or it cannot be loaded, TimeoutError.
        """
        ...
