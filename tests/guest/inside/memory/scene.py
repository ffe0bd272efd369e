"""A node whose shares the plugin holds to their memory: real runc, real cgroups, the double of NVML.

The plugin's parts run in processes of their own. What lies on the disk outlives them.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.hardware.inventory import Discovery
from driver.nvml.deadline import Guard
from driver.nvml.real import RealNvml
from driver.roots.driver_roots import DriverRoots
from kubeletplugin.cdi.memory_hook import memory_sockets
from kubeletplugin.memory.hook_socket import HookSocket
from kubeletplugin.wire.claim_call import ClaimRef
from kubeletplugin.wire.names import cdi_spec_file_name
from tests.guest.inside.memory.containers import Container, Runc
from tests.guest.inside.memory.plugin_process import PluginProcess
from tests.kubeletplugin.fake_node import FakeNode
from tests.kubeletplugin.fake_roots import reinstall_driver
from tests.nvml_library.library import NvmlDouble, Told, limits_now, most_together

MACHINE = "l4-quad"
GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True, slots=True)
class Built:
    """What was built outside of the guest: the double of NVML, the first process, and two hooks."""

    folder: Path

    @property
    def nvml(self) -> Path:
        return self.folder / "nvml.so"

    @property
    def first(self) -> Path:
        return self.folder / "first"

    @property
    def hook(self) -> Path:
        return self.folder / "gpu-memory-hook"

    @property
    def nvidia_hook(self) -> Path:
        return self.folder / "nvidia-cdi-hook"


class LimitedNode(FakeNode):
    """A node of fake GPUs whose NVML is a compiled library, and whose cgroups are this kernel's."""

    def __init__(self, folder: Path, built: Built) -> None:
        self._built = built
        super().__init__(folder, MACHINE, on_disk=True)

    def lay_double(self) -> NvmlDouble:
        """Lay the library into the node's driver root."""
        root = self.folder / "driver"
        reinstall_driver(root, self.machine)
        return NvmlDouble.lay(root, self.machine, self._built.nvml)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that is prepared, and its devices by the requests that they were allocated for."""

    ref: ClaimRef
    devices: tuple[str, ...]
