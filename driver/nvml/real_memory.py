"""The memory limits of the real NVML: plain bytes in and out.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.memory_calls documents these methods

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from driver.nvml.api import GPU_CALLS, Code, failure
from driver.nvml.memory_limits import NO_LIMIT_BYTES, MemoryLimits

if TYPE_CHECKING:
    from collections.abc import Callable


class RealMemoryCalls(ABC):
    """What RealDevice asks about memory limits."""

    _pynvml: ClassVar[Any]
    _handle: Any
    _subject: str

    @abstractmethod
    def _ask(self, method: str, inside: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function; ``inside`` names the part of the GPU in errors."""

    def set_memory_limits(self, cgroup: str, soft_bytes: int, hard_bytes: int) -> None:
        limits = self._pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(cgroup), soft_bytes, hard_bytes)
        function = self._pynvml.nvmlDeviceSetMemoryLimits_v1
        self._ask("set_memory_limits", f" for {cgroup}", function, self._handle, limits)

    def memory_limits(self, cgroup: str) -> MemoryLimits:
        limits = self._pynvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(cgroup))
        function = self._pynvml.nvmlDeviceGetMemoryLimits_v1
        self._ask("memory_limits", f" for {cgroup}", function, self._handle, limits)
        found = MemoryLimits(int(limits.softLimit), int(limits.hardLimit), int(limits.currentUsed))
        if (found.soft_bytes, found.hard_bytes) == (0, NO_LIMIT_BYTES):  # no limit is set (nvml.h)
            call = GPU_CALLS["memory_limits"]
            raise failure(call, Code.NOT_FOUND, f"{self._subject} for {cgroup}")
        return found
