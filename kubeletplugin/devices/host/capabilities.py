"""Finds the device nodes that let a container use one MIG instance: nvidia-capabilities of the kernel driver.

Each instance has a file below /proc/driver/nvidia/capabilities that names the minor of its node in
/dev/nvidia-caps (MIG user guide, "Device Nodes and Capabilities"). The minors follow the GPU's minor, so
they are read each time. The node of a new instance is made by whoever first needs it, as nvidia-modprobe
does, for nobody else may have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from driver.errors import NodeIncomplete
from kubeletplugin.devices.host.device_nodes import DeviceFolder, DeviceNode

_MINOR = re.compile(rb"^DeviceFileMinor:[ \t]*([0-9]{1,7})[ \t]*$", re.MULTILINE)
_MODE = re.compile(rb"^DeviceFileMode:[ \t]*([0-9]{1,5})[ \t]*$", re.MULTILINE)
_MAJOR = re.compile(rb"^[ \t]*([0-9]{1,4})[ \t]+nvidia-caps[ \t]*$", re.MULTILINE)
_CAPABILITIES = Path("driver/nvidia/capabilities")
_ON_NODE = Path("/proc") / _CAPABILITIES
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities that one /proc tells of."""

    proc: Path

    @classmethod
    def below(cls, driver_root: Path, proc: Path = Path("/proc")) -> Capabilities:
        """Those below a driver root that shows any, else those of the node itself."""
        own = driver_root / "proc"
        return cls(own if (own / _CAPABILITIES).is_dir() else proc)

    def nodes(
        self, devices: DeviceFolder, gpu_minor: int, gpu_instance_id: int, compute_instance_id: int
    ) -> tuple[DeviceNode, DeviceNode]:
        """The nodes of a GPU instance and of a compute instance inside, fresh.

        Raises NodeIncomplete where the driver tells of no such instance, or a node is missing or is not
        the one that the driver means.
        """
        major = self._major()
        instance = f"gpu{gpu_minor}/mig/gi{gpu_instance_id}"
        return (
            self._node(devices, f"{instance}/access", major),
            self._node(devices, f"{instance}/ci{compute_instance_id}/access", major),
        )

    def _node(self, devices: DeviceFolder, name: str, major: int | None) -> DeviceNode:
        file = self.proc / _CAPABILITIES / name
        text = _read(file)
        minor = _number(_MINOR, text)
        if minor is None:
            raise NodeIncomplete(
                f"the capability file {file} of a MIG instance is missing or names no minor",
                "look for NVIDIA messages in the kernel log; --driver-root must be that of the loaded driver",
            )
        path = f"/dev/nvidia-caps/nvidia-cap{minor}"
        node = devices.find(path)
        if node is None and major is not None:
            node = devices.make(path, major, minor, _number(_MODE, text) or 0)
        # The major is given out anew with each load of the driver: a node from before opens something else.
        if node is None or (major is not None and (node.major, node.minor) != (major, minor)):
            what = "missing" if node is None else f"{node.major}:{node.minor} and not {major}:{minor}"
            raise NodeIncomplete(
                f"the device node {path} of a MIG instance is {what} below {devices.root or '/'}",
                f"remove it if it is there, then run nvidia-modprobe -f {_ON_NODE / name} on the node",
            )
        return node

    def _major(self) -> int | None:
        """The major of capability nodes, which the kernel chose; None where it names none."""
        return _number(_MAJOR, _read(self.proc / "devices"))


def _number(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.search(text)
    return None if found is None else int(found[1])


def _read(file: Path) -> bytes:
    """The first bytes of a file; nothing where there is none."""
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""
