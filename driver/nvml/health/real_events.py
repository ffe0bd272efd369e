"""Waits for events of the real NVML, in both forms that the NVIDIA driver has for them.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

from __future__ import annotations

import math
import time
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from driver.nvml.api import (
    GPU_CALLS,
    NODE_CALLS,
    Code,
    DriverNotLoaded,
    NotSupported,
    NvmlCallFailed,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.health.calls import EventKind, GpuEvent, Severity
from driver.nvml.health.incidents import Heard, Incidents
from driver.nvml.real_mig import handle_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Ask = Callable[..., Any]
    """Makes a call of the binding: the C function that errors name, the GPU, the function, its arguments."""

_KINDS: dict[int, EventKind] = {
    0x1: "single-bit-ecc", 0x2: "double-bit-ecc", 0x8: "xid", 0x10: "clock", 0x80: "power-source",
    0x200: "single-bit-ecc", 0x400: "operational", 0x800: "operational", 0x1000: "operational",
    0x2000: "operational", 0x4000: "operational", 0x8000: "operational",
}  # fmt: skip
_SEVERITIES: dict[int, Severity] = {10: "informational", 20: "corrected", 30: "recoverable", 40: "fatal"}
_NOTICE, _CORRECTED = 30, 20
"""The least log level and severity that are passed on: below are telemetry and what needs no action."""

_STRUCTURED, _LEGACY_XID = 1, 1
_UNCONTAINED, _COMPONENT_RESET, _OVERFLOW, _RECOVERED = 1 << 0, 1 << 3, 1 << 6, 1 << 0
_NO_INSTANCE = 0xFFFFFFFF
_WAIT = NODE_CALLS["wait_events"]

_SLICE_SECONDS = 0.5
"""How long one call of NVML waits: nothing ends it from outside, and ``close`` has to be noticed."""

_LEAVE_SECONDS = 2.0
"""How long ``close`` waits for a call to return. NVML must not free a set that a thread waits for."""


class RealEventSet:
    """The events of the GPUs whose handles and UUIDs are ``gpus``; see driver.nvml.health.calls.EventSet."""

    def __init__(self, pynvml: Any, ask: Ask, gpus: Iterable[tuple[Any, str]]) -> None:
        """Register for what each GPU has; one that refuses is left out. Raises NvmlError."""
        self._pynvml = pynvml
        self._ask = ask
        self._closed = Event()
        self._waiting = Lock()
        self._set = ask(NODE_CALLS["watch_events"], "", pynvml.nvmlEventSetCreate)
        self._uuids: dict[int, str] = {}
        structured = set()
        try:
            for handle, uuid in gpus:
                if self._register(handle, uuid):
                    self._uuids[handle_number(handle)] = uuid
                    if self._register_structured(uuid):
                        structured.add(uuid)
        except NvmlCallFailed:
            self.close()
            raise
        self._has_v3 = True
        self._incidents = Incidents(frozenset(structured))

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs of which events come."""
        return frozenset(self._uuids.values())

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event; events that came before a call failed are passed on before the failure."""
        until = time.monotonic() + seconds
        while True:
            event = self._incidents.ready(time.monotonic())
            if event is not None:
                return event
            now = time.monotonic()
            due = self._incidents.due_in(now)
            left = min(_SLICE_SECONDS, max(until - now, 0.0), _SLICE_SECONDS if due is None else due)
            try:
                heard = self._hear(left)
            except NvmlCallFailed:
                if due is None or self._closed.is_set():
                    raise
                self._incidents.hold_no_longer(time.monotonic())
                continue
            if heard is not None:
                self._incidents.hear(heard, time.monotonic())
            elif time.monotonic() >= until and self._incidents.due_in(time.monotonic()) is None:
                return None

    @property
    def is_freed(self) -> bool:
        """Whether NVML has the set no more."""
        return self._set is None

    def close(self) -> None:
        """Free the set; raises NvmlTimeout where a wait does not return, which then holds it."""
        self._closed.set()
        if not self._waiting.acquire(timeout=_LEAVE_SECONDS):
            raise NvmlTimeout(_WAIT, "the node", _LEAVE_SECONDS)
        try:
            events, self._set = self._set, None
            if events is not None:
                self._ask("nvmlEventSetFree", "", self._pynvml.nvmlEventSetFree, events)
        finally:
            self._waiting.release()

    def _register(self, handle: Any, uuid: str) -> bool:
        """Whether the GPU reports anything in the old form."""
        call = GPU_CALLS["register_events"]
        try:
            supported = int(self._ask(call, uuid, self._pynvml.nvmlDeviceGetSupportedEventTypes, handle))
            wanted = supported & sum(_KINDS)
            if wanted:
                self._ask(call, uuid, self._pynvml.nvmlDeviceRegisterEvents, handle, wanted, self._set)
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return False
        return wanted != 0

    def _register_structured(self, uuid: str) -> bool:
        """Whether the GPU tells in the structured form, too (driver R615 and newer, Turing and newer)."""
        function = self._pynvml.nvmlEventSetRegisterGpuOperationalEvents_v1
        config = self._pynvml.c_nvmlGpuOperationalEventConfig_v1_t(uuid, _NOTICE, _CORRECTED)
        try:
            self._ask("nvmlEventSetRegisterGpuOperationalEvents_v1", uuid, function, self._set, config)
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return False
        return True

    def _hear(self, seconds: float) -> Heard | None:
        """What NVML tells within so long, in one call."""
        with self._waiting:
            if self._closed.is_set():
                raise SessionLost(_WAIT, Code.UNINITIALIZED)
            heard = self._call(math.ceil(seconds * 1000)) if self._uuids else None
        if not self._uuids:
            self._closed.wait(seconds)  # NVML refuses to wait for nothing
        if self._closed.is_set():
            raise SessionLost(_WAIT, Code.UNINITIALIZED)
        return heard

    def _call(self, milliseconds: int) -> Heard | None:
        try:
            if self._has_v3:
                try:
                    return self._v3(milliseconds)
                except NotSupported:
                    self._has_v3 = False
            return self._v2(milliseconds)
        except NvmlCallFailed as error:
            if error.code == Code.TIMEOUT:
                return None
            raise

    def _v2(self, milliseconds: int) -> Heard:
        data = self._ask(_WAIT, "", self._pynvml.nvmlEventSetWait_v2, self._set, milliseconds)
        return Heard(_old(data, self._uuids.get(handle_number(data.device), "")))

    def _v3(self, milliseconds: int) -> Heard:
        data = self._pynvml.c_nvmlEventSetWait_v3_t(timeoutMs=milliseconds)
        self._ask("nvmlEventSetWait_v3", "", self._pynvml.nvmlEventSetWait_v3, self._set, data)
        uuid = data.uuid if isinstance(data.uuid, str) else data.uuid.decode()
        if int(data.dataType) != _STRUCTURED:
            return Heard(_old(data, uuid))
        return Heard(_structured(data, uuid, self._legacy_xid()), max(int(data.groupSize), 1))

    def _legacy_xid(self) -> int | None:
        """The XID that the last event came from; None for one without."""
        try:
            found = self._pynvml.c_nvmlEventSetGetContextCount_v1_t()
            self._context("nvmlEventSetGetContextCount_v1", found)
            for index in range(int(found.count)):
                info = self._pynvml.c_nvmlEventSetGetContextInfo_v1_t(index=index)
                self._context("nvmlEventSetGetContextInfo_v1", info)
                if int(info.nvmlGpuOperationalEventContextType) == _LEGACY_XID:
                    xid = self._pynvml.c_nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t(index=index)
                    self._context("nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1", xid)
                    return int(xid.xidCode)
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return None  # the event itself tells enough
        return None

    def _context(self, name: str, parameters: Any) -> None:
        self._ask(name, "", getattr(self._pynvml, name), self._set, parameters)


def _old(data: Any, uuid: str) -> GpuEvent:
    """An event bit of nvml.h: eventData is the XID of a critical error."""
    kind = _KINDS.get(int(data.eventType), "operational")
    return GpuEvent(
        kind,
        uuid,
        int(data.eventData) if kind == "xid" else None,
        _instance(data.gpuInstanceId),
        _instance(data.computeInstanceId),
    )


def _structured(data: Any, uuid: str, xid: int | None) -> GpuEvent:
    attributes = int(data.attributes)
    return GpuEvent(
        "operational" if xid is None else "xid",
        uuid,
        xid,
        _instance(data.gpuInstanceId),
        _instance(data.computeInstanceId),
        severity=_SEVERITIES.get(int(data.severity)),
        contained=not attributes & _UNCONTAINED,
        recovered=bool(int(data.groupAttributes) & _RECOVERED),
        component_reset=bool(attributes & _COMPONENT_RESET),
        dropped=bool(attributes & _OVERFLOW),
        incident=str(int(data.groupCursor) or ""),
    )


def _instance(number: int) -> int | None:
    return None if int(number) == _NO_INSTANCE else int(number)
