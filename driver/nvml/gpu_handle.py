"""What the parts of the real NVML share: one GPU's handle, and calls that several of them make."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from driver.nvml.api import Code, NotSupported, NvmlCallFailed

SUCCESS = 0
"""NVML_SUCCESS, as structs with a return code of their own have it."""

# The value of gpuInstanceId and computeInstanceId in structs of nvml.h that are about no instance.
_NO_INSTANCE = 0xFFFFFFFF


class GpuHandle(ABC):
    """One GPU's NVML handle; ``_subject`` names the GPU in errors.

    driver.nvml.real, the only module that imports pynvml, gives ``_pynvml`` and the two ways to call it.
    """

    _pynvml: ClassVar[Any]
    _handle: Any
    _subject: str

    @abstractmethod
    def _get(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on the GPU's handle; errors name the GPU and the method's C function."""

    @abstractmethod
    def _ask(self, method: str, inside: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on another handle; ``inside`` names the part of the GPU in errors."""

    def _running_processes(self, method: str) -> list[Any]:
        """NVML's structs of the processes that compute or draw on the GPU, or on any of its instances."""
        found = list(self._get(method, self._pynvml.nvmlDeviceGetComputeRunningProcesses_v3))
        # A GPU without graphics has no such list.
        with suppress(NotSupported):
            found += self._get(method, self._pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3)
        return found

    def _mig_handles(self, method: str) -> Iterator[tuple[int, Any]]:
        """Index and handle of each MIG device; none on a GPU without MIG."""
        try:
            count = int(self._get(method, self._pynvml.nvmlDeviceGetMaxMigDeviceCount))
        except NotSupported:
            return
        # The indexes are places up to the maximum, not the devices that exist: most of them may be empty.
        for index in range(count):
            try:
                handle = self._get(method, self._pynvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
            except NvmlCallFailed as error:
                if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                    raise
                continue
            yield index, handle


def handle_number(handle: Any) -> int:
    """A number by which handles can be compared: pynvml makes a new pointer object for each answer."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)


def instance_id(number: int) -> int | None:
    """The id of a GPU instance or compute instance; None for NVML's number for none."""
    return None if int(number) == _NO_INSTANCE else int(number)
