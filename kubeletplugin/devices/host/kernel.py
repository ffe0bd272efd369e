"""What the plugin tells the kernel: writes into sysfs, modules to be loaded, and files that it may withhold.

Most of sysfs needs no port: it is plain files below its root. But some files need the lock of the function,
and whoever reads them waits, unkillable, while a driver does not let go of it. The pretend kernel of
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

    def read(self, path: Path, deadline_seconds: float) -> str:
        """The text of a file of sysfs that the kernel gives out under the lock of its function.

        These are ``driver_override`` and ``sriov_numvfs``. Raises OSError, and TimeoutError while a driver is
        still being taken from the function.
        """
        ...

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Have a kernel module loaded, such as ``vfio-pci``; one that is there already is fine.

        Raises OSError where there is no such module or it cannot be loaded, TimeoutError.
        """
        ...
