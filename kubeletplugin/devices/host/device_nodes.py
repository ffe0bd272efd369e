"""Looks up device nodes of the NVIDIA driver, and makes those that are made on demand."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from driver.errors import NodeIncomplete

NVIDIA_MAJOR = 195
"""The character device major of /dev/nvidiaN and nvidiactl (Linux, Documentation/admin-guide/devices.txt)."""

REQUIRED_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
OPTIONAL_CONTROL_NODES = ("/dev/nvidia-modeset",)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device: ``path`` in the container, ``below_root`` as this process sees it."""

    path: str
    below_root: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class DeviceFolder:
    """The device nodes in ``<root>/dev``; ``root`` is empty or a path without a slash at its end."""

    root: str

    @classmethod
    def below(cls, *roots: Path) -> DeviceFolder:
        """The nodes below the first root that has /dev/nvidiactl, else this process's own /dev."""
        for root in roots:
            # Every use of the driver opens /dev/nvidiactl, so a root without it has no nodes to use.
            text = str(root).rstrip("/")
            if os.path.exists(f"{text}/dev/nvidiactl"):  # noqa: PTH110 - on every prepare
                return cls(text)
        return cls("")

    def find(self, path: str) -> DeviceNode | None:
        """The character device at the absolute ``path``, or None when there is none."""
        below_root = self.root + path
        try:
            status = os.stat(below_root)  # noqa: PTH116 - text, since every prepare asks for ten nodes
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return DeviceNode(path, below_root, os.major(status.st_rdev), os.minor(status.st_rdev))

    def make(
        self,
        path: str,
        major: int,
        minor: int,
        mode: int,
        owner: tuple[int, int] = (0, 0),
        *,
        for_all: bool = False,
    ) -> DeviceNode | None:
        """Make the missing device at ``path`` with this mode and owner; None if that fails.

        Without ``for_all``, a mode that lets everybody write loses that right.
        """
        file = Path(self.root + path)
        try:
            file.parent.mkdir(mode=0o755, exist_ok=True)
            os.mknod(file, stat.S_IFCHR, os.makedev(major, minor))
            os.chown(file, *owner)
            # The umask of this process cuts the mode given to mknod, but not that of chmod.
            file.chmod(mode & (0o666 if for_all else 0o664))
        except OSError:
            pass  # somebody else may have made it, else the caller says that it is missing
        return self.find(path)

    def require(self, path: str) -> DeviceNode:
        """The character device at ``path``; raises NodeIncomplete when it is missing."""
        node = self.find(path)
        if node is None:
            raise NodeIncomplete(
                f"the device node {path} is missing below {self.root or '/'}",
                "load the NVIDIA kernel modules and run nvidia-modprobe -u -c 0, or nvidia-smi, on the node",
            )
        return node

    def require_gpu(self, minor: int) -> DeviceNode:
        """The node of the GPU with this minor; raises NodeIncomplete also if it opens another GPU."""
        node = self.require(f"/dev/nvidia{minor}")
        # A pretended node has the null device (1:3) in place of each GPU; its minor means nothing.
        if node.major == NVIDIA_MAJOR and node.minor != minor:
            raise NodeIncomplete(
                f"the device node {node.path} has minor {node.minor} and so belongs to another GPU",
                "remove it and run nvidia-modprobe on the node",
            )
        return node

    def control(self) -> tuple[DeviceNode, ...]:
        """The nodes that every CUDA program needs, and the optional ones that exist."""
        required = [self.require(path) for path in REQUIRED_CONTROL_NODES]
        optional = [node for path in OPTIONAL_CONTROL_NODES if (node := self.find(path))]
        return (*required, *optional)
