"""Makes the device nodes of nvidia-uvm where its kernel module is loaded and nobody has made them.

CUDA's first program on a host makes them by nvidia-modprobe; a host that runs only containers may have none.
They are made as it makes them: numbers from /proc/devices, owner and mode from the driver's parameters.
"""

from __future__ import annotations

import re
from pathlib import Path

from driver.errors import NodeIncomplete
from kubeletplugin.devices.host.device_nodes import DeviceFolder

_MINORS = {"/dev/nvidia-uvm": 0, "/dev/nvidia-uvm-tools": 1}
_MAJOR = re.compile(r"^[ \t]*([0-9]{1,4})[ \t]+nvidia-uvm[ \t]*$", re.MULTILINE | re.ASCII)
_PARAMETER = re.compile(r"^(\w+):[ \t]*([0-9]{1,10})[ \t]*$", re.MULTILINE | re.ASCII)
_EVERYBODY = 0o666
"""The driver's own default (DeviceFileMode 438); the kernel module decides what a process may do."""


def make_uvm_nodes(devices: DeviceFolder) -> None:
    """Make those that are missing; nothing where the module is not loaded, or the parameters forbid it.

    Raises NodeIncomplete for a node that is of an earlier load of the module: it opens something else now.
    """
    proc = Path(f"{devices.root}/proc")
    found = _MAJOR.search(_text(proc / "devices"))
    if found is None:
        return
    major = int(found[1])
    missing = []
    for path, minor in _MINORS.items():
        node = devices.find(path)
        if node is None:
            missing.append((path, minor))
        elif (node.major, node.minor) != (major, minor):
            raise NodeIncomplete(
                f"the device node {path} is {node.major}:{node.minor}, /proc/devices says {major}:{minor}",
                "remove it; it is made anew",
            )
    if not missing:
        return
    parameters = {
        name: int(value) for name, value in _PARAMETER.findall(_text(proc / "driver/nvidia/params"))
    }
    if parameters.get("ModifyDeviceFiles", 1) == 0:
        return
    owner = parameters.get("DeviceFileUID", 0), parameters.get("DeviceFileGID", 0)
    mode = parameters.get("DeviceFileMode", _EVERYBODY)
    for path, minor in missing:
        devices.make(path, major, minor, mode, owner, for_all=True)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
