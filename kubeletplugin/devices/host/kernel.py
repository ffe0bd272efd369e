"""The calls of the kernel that may block: writes into sysfs, loading modules, and reading certain files.

Other files of sysfs are read directly. The kernel hands out some only under the lock of the PCI function, so
a reader waits, and cannot be killed, until a driver has let the function go. The pretend kernel of
``fakegpu.sysfs`` answers the same calls for a pretend node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Kernel(Protocol):
    """The kernel of the node."""

    def write(self, path: Path, text: str, deadline_seconds: float) -> None:
        """Write to a file of sysfs, such as ``<sysfs root>/bus/pci/drivers/nvidia/unbind``, in one call.

        The kernel may take any time, so a child process writes. Raises OSError with the kernel's own number
        (EBUSY, ENODEV, EINVAL, ENOENT), and TimeoutError if the write has not returned in time. It is still
        under way then and may yet succeed.
        """
        ...

    def read(self, path: Path, deadline_seconds: float) -> str:
        """The text of a file of sysfs that the kernel hands out under the lock of its PCI function.

        These are ``driver_override`` and ``sriov_numvfs``. Raises OSError, and TimeoutError while the kernel
        is still taking a driver from the function.
        """
        ...

    def load_module(self, name: str, deadline_seconds: float) -> None:
        """Load a kernel module such as ``vfio-pci``, unless it is loaded already.

        Raises OSError if there is no such module or it cannot be loaded, and TimeoutError.
        """
        ...
