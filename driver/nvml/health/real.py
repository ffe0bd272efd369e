"""The health calls of the real NVML: plain values out.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

# ruff: noqa: D102 - the protocol of driver.nvml.health.calls documents these methods

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from driver.nvml.api import GPU_CALLS, Code, NotSupported, NvmlCallFailed, failure
from driver.nvml.health.calls import EccErrors, FabricHealth, NvLinkState, RecoveryAction, RemappedRows

_SUCCESS = 0
_RECOVERY_ACTION_FIELD = 230
_ACTIONS: dict[int, RecoveryAction] = {
    0: "none", 1: "reset", 2: "node-reboot", 3: "drain-p2p", 4: "drain-and-reset", 5: "recover-imex",
    6: "bus-reset", 7: "system-reboot",
}  # fmt: skip
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0

_REPLAY_FIELD, _RECOVERY_FIELD, _CRC_FIELD = 161, 162, 163
_RECOVERY_EVENTS_FIELD = 215
"""Blackwell and newer tell this one in the place of the three."""
_LINK_FIELDS = (_REPLAY_FIELD, _RECOVERY_FIELD, _CRC_FIELD, _RECOVERY_EVENTS_FIELD)

_FABRIC_COMPLETED = 3
_VERSION_MISMATCH = 25
_SUMMARIES: dict[int, Literal["healthy", "unhealthy", "limited-capacity"]] = {
    1: "healthy", 2: "unhealthy", 3: "limited-capacity",
}  # fmt: skip
_FAULT_SHIFTS = {"degraded-bandwidth": 0, "route-recovery": 2, "route-unhealthy": 4, "access-timeout": 6}
_CONFIGURATION_SHIFT, _CONFIGURATION_RIGHT = 8, 1
_BREAKING_FAULTS = frozenset({"route-unhealthy", "access-timeout", "wrong-configuration"})


class _UnrepairableMemory(ctypes.Structure):
    """nvmlUnrepairableMemoryStatus_v1_t of nvml.h, which has no version in front, as the binding's has."""

    _fields_ = (("unrepairable", ctypes.c_uint),)


class RealHealthCalls(ABC):
    """What RealDevice asks about health."""

    _pynvml: ClassVar[Any]
    _handle: Any
    _subject: str

    @abstractmethod
    def _get(self, method: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function on the GPU's handle; errors name the GPU and the method's C function."""

    @abstractmethod
    def _link_states(self, method: str) -> Iterator[tuple[int, bool]]:
        """The GPU's links, and whether each is up."""

    def recovery_action(self) -> RecoveryAction | None:
        method = "recovery_action"
        field = self._get(method, self._pynvml.nvmlDeviceGetFieldValues, [_RECOVERY_ACTION_FIELD])[0]
        if field.nvmlReturn == Code.INVALID_ARGUMENT:  # a driver that does not know the field
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
        if field.nvmlReturn != _SUCCESS:
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
        """Call the function with the structure that it has; raises the binding's NVMLError."""
        function = self._pynvml._nvmlGetFunctionPointer(GPU_CALLS["unrepairable_memory"])  # noqa: SLF001 - as its wrappers
        self._pynvml._nvmlCheckReturn(function(handle, ctypes.byref(found)))  # noqa: SLF001 - likewise

    def ecc_errors(self) -> EccErrors:
        function = self._pynvml.nvmlDeviceGetTotalEccErrors
        corrected = self._get("ecc_errors", function, _CORRECTED, _VOLATILE)
        return EccErrors(int(corrected), int(self._get("ecc_errors", function, _UNCORRECTED, _VOLATILE)))

    def fabric_health(self) -> FabricHealth:
        method, function = "fabric_health", self._pynvml.nvmlDeviceGetGpuFabricInfoV
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
        if int(info.state) != _FABRIC_COMPLETED:
            raise failure(GPU_CALLS[method], Code.NOT_SUPPORTED, self._subject)
        return fabric_health_of(int(info.healthMask), summary)

    def nvlink_states(self) -> tuple[NvLinkState, ...]:
        states = list(self._link_states("nvlink_states"))
        errors = self._link_errors([link for link, active in states if active])
        return tuple(NvLinkState(link, active, *errors.get(link, ())) for link, active in states)

    def _link_errors(self, links: list[int]) -> dict[int, tuple[int, int, int]]:
        """The errors of links: replays, recoveries, CRC; 0 where the GPU does not tell."""
        if not links:
            return {}
        asked = [(field, link) for link in links for field in _LINK_FIELDS]
        try:
            fields = self._get("nvlink_states", self._pynvml.nvmlDeviceGetFieldValues, asked)
        except NotSupported:
            return {}
        told = {
            (int(field.scopeId), int(field.fieldId)): _number(field)
            for field in fields
            if field.nvmlReturn == _SUCCESS
        }
        return {link: _errors(told, link) for link in links}


def fabric_health_of(mask: int, summary: int | None) -> FabricHealth:
    """What a health mask of nvml.h says, with the summary that version 3 has beside it.

    In the mask 0 is "not told" everywhere, 1 a fault where there are only yes and no, and 2 and more a wrong
    configuration. Without a summary those faults decide after which nothing runs over the fabric.
    """
    faults = [word for word, shift in _FAULT_SHIFTS.items() if mask >> shift & 0x3 == 1]
    if mask >> _CONFIGURATION_SHIFT & 0xF > _CONFIGURATION_RIGHT:
        faults.append("wrong-configuration")
    told = tuple(sorted(faults))
    if summary is not None:
        return FabricHealth(_SUMMARIES.get(summary, "unknown"), told)
    if not _BREAKING_FAULTS.isdisjoint(told):
        return FabricHealth("unhealthy", told)
    if "degraded-bandwidth" in told:
        return FabricHealth("limited-capacity", told)
    return FabricHealth("healthy" if mask else "unknown", told)


def _errors(told: Mapping[tuple[int, int], int], link: int) -> tuple[int, int, int]:
    replays, recoveries, crc, events = (told.get((link, field), 0) for field in _LINK_FIELDS)
    return replays, recoveries or events, crc


_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""The member of nvmlValue_t for each type of nvmlValueType_t."""


def _number(field: Any) -> int:
    """The value of a field, of whichever type it is."""
    return int(getattr(field.value, _VALUES.get(int(field.valueType), "ullVal")))
