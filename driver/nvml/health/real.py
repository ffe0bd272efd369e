"""The health calls of the real NVML; they return plain values.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.health.calls documents these methods

from __future__ import annotations

import ctypes
from typing import Any, Literal

from driver.nvml.api import GPU_CALLS, Code, NvmlCallFailed, failure
from driver.nvml.gpu_handle import SUCCESS, GpuHandle
from driver.nvml.health.calls import EccErrors, FabricHealth, RecoveryAction, RemappedRows

_RECOVERY_ACTION_FIELD = 230
_ACTIONS: dict[int, RecoveryAction] = {
    0: "none", 1: "reset", 2: "node-reboot", 3: "drain-p2p", 4: "drain-and-reset", 5: "recover-imex",
    6: "bus-reset", 7: "system-reboot",
}  # fmt: skip
# NVML_MEMORY_ERROR_TYPE_CORRECTED, _UNCORRECTED and NVML_VOLATILE_ECC: since the driver was loaded.
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0

_FABRIC_COMPLETED = 3
_VERSION_MISMATCH = 25
_SUMMARIES: dict[int, Literal["healthy", "unhealthy", "limited-capacity"]] = {
    1: "healthy", 2: "unhealthy", 3: "limited-capacity",
}  # fmt: skip
_FAULT_SHIFTS = {"degraded-bandwidth": 0, "route-recovery": 2, "route-unhealthy": 4, "access-timeout": 6}
_CONFIGURATION_SHIFT, _CONFIGURATION_RIGHT = 8, 1
_BREAKING_FAULTS = frozenset({"route-unhealthy", "access-timeout", "wrong-configuration"})


class _UnrepairableMemory(ctypes.Structure):
    """nvmlUnrepairableMemoryStatus_v1_t of nvml.h."""

    # The binding's own structure has a version word in front, which nvml.h does not have.
    _fields_ = (("unrepairable", ctypes.c_uint),)


class RealHealthCalls(GpuHandle):
    """The calls of RealDevice about health."""

    def recovery_action(self) -> RecoveryAction | None:
        method = "recovery_action"
        field = self._get(method, self._pynvml.nvmlDeviceGetFieldValues, [_RECOVERY_ACTION_FIELD])[0]
        # The call as a whole succeeds, and each field has a return code of its own. A driver that is older
        # than the field says INVALID_ARGUMENT.
        if field.nvmlReturn == Code.INVALID_ARGUMENT:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
        if field.nvmlReturn != SUCCESS:
            raise failure(GPU_CALLS[method], int(field.nvmlReturn), self._subject)
        return _ACTIONS.get(int(field.value.uiVal))

    def remapped_rows(self) -> RemappedRows:
        function = self._pynvml.nvmlDeviceGetRemappedRows
        corrected, uncorrected, pending, failed = self._get("remapped_rows", function)
        return RemappedRows(int(corrected), int(uncorrected), pending=bool(pending), failed=bool(failed))

    def retired_pages_pending(self) -> bool:
        function = self._pynvml.nvmlDeviceGetRetiredPagesPendingStatus
        return bool(self._get("retired_pages_pending", function))

    def unrepairable_memory(self) -> bool:
        found = _UnrepairableMemory()
        self._get("unrepairable_memory", self._unrepairable_memory, found)
        return bool(found.unrepairable)

    def _unrepairable_memory(self, handle: Any, found: _UnrepairableMemory) -> None:
        """Call the function with our structure; raises the binding's NVMLError."""
        function = self._pynvml._nvmlGetFunctionPointer(GPU_CALLS["unrepairable_memory"])  # noqa: SLF001 - as its wrappers
        self._pynvml._nvmlCheckReturn(function(handle, ctypes.byref(found)))  # noqa: SLF001 - likewise

    def ecc_errors(self) -> EccErrors:
        function = self._pynvml.nvmlDeviceGetTotalEccErrors
        corrected = self._get("ecc_errors", function, _CORRECTED, _VOLATILE)
        return EccErrors(int(corrected), int(self._get("ecc_errors", function, _UNCORRECTED, _VOLATILE)))

    def fabric_health(self) -> FabricHealth:
        method, function = "fabric_health", self._pynvml.nvmlDeviceGetGpuFabricInfoV
        # Version 3 has a summary. An older driver refuses the struct's version and takes version 2, which has
        # the mask alone.
        info = self._pynvml.c_nvmlGpuFabricInfo_v3_t()
        summary = None
        try:
            self._get(method, function, ctypes.byref(info))
            summary = int(info.healthSummary)
        except NvmlCallFailed as error:
            if error.code not in (Code.INVALID_ARGUMENT, _VERSION_MISMATCH):
                raise
            info = self._pynvml.c_nvmlGpuFabricInfo_v2_t()
            self._get(method, function, ctypes.byref(info))
        # Before that the health fields have no meaning.
        if int(info.state) != _FABRIC_COMPLETED:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
        return fabric_health_of(int(info.healthMask), summary)


def fabric_health_of(mask: int, summary: int | None) -> FabricHealth:
    """What a health mask of nvml.h means, with the summary that version 3 of the struct has beside it.

    Without a summary the GPU is unhealthy if it has one of the faults with which no job runs over the fabric.
    """
    # These have two bits each: 0 not reported, 1 yes, 2 no. A wrong configuration has four: 0 not reported, 1
    # none, more are kinds of it.
    faults = [word for word, shift in _FAULT_SHIFTS.items() if mask >> shift & 0x3 == 1]
    if mask >> _CONFIGURATION_SHIFT & 0xF > _CONFIGURATION_RIGHT:
        faults.append("wrong-configuration")
    words = tuple(sorted(faults))
    if summary is not None:
        return FabricHealth(_SUMMARIES.get(summary, "unknown"), words)
    if not _BREAKING_FAULTS.isdisjoint(words):
        return FabricHealth("unhealthy", words)
    if "degraded-bandwidth" in words:
        return FabricHealth("limited-capacity", words)
    # A mask of 0 reports nothing at all, good or bad.
    return FabricHealth("healthy" if mask else "unknown", words)
