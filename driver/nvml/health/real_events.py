"""Waits for events of the real NVML, in both forms in which the NVIDIA driver reports them.

The functions of the binding come from driver.nvml.real, the only module that imports it.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from driver.nvml.api import (
    GPU_CALLS,
    NODE_CALLS,
    Code,
    DriverNotLoaded,
    NotSupported,
    NvmlCallFailed,
    SessionLost,
)
from driver.nvml.gpu_handle import handle_number, instance_id
from driver.nvml.health.calls import EventKind, GpuEvent, Severity
from driver.nvml.health.incidents import Incidents, Received

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Ask = Callable[..., Any]
    """Makes a call of the binding: the C function that errors name, the GPU, the function, its arguments."""

# nvmlEventType bits. P-state changes (0x4) are left out, since they are no faults.
_KINDS: dict[int, EventKind] = {
    0x1: "single-bit-ecc", 0x2: "double-bit-ecc", 0x8: "xid", 0x10: "clock", 0x80: "power-source",
    0x200: "single-bit-ecc", 0x400: "operational", 0x800: "operational", 0x1000: "operational",
    0x2000: "operational", 0x4000: "operational", 0x8000: "operational",
}  # fmt: skip
_SEVERITIES: dict[int, Severity] = {10: "informational", 20: "corrected", 30: "recoverable", 40: "fatal"}
_NOTICE, _CORRECTED = 30, 20
"""The least log level and severity that NVML delivers: below them is what needs no action."""

# dataType of nvmlEventSetWait_v3, and the context type that holds an XID. Below are bits of ``attributes``
# and ``groupAttributes``.
_STRUCTURED, _LEGACY_XID = 1, 1
_UNCONTAINED, _COMPONENT_RESET, _OVERFLOW, _RECOVERED = 1 << 0, 1 << 3, 1 << 6, 1 << 0
_WAIT = NODE_CALLS["wait_events"]

# How long one call of NVML waits. Nothing ends nvmlEventSetWait from outside, so ``close`` is noticed only
# between two calls. NVML must not free a set on which a thread waits.
_SLICE_SECONDS = 0.5


class RealEventSet:
    """The events of the GPUs whose handles and UUIDs are ``gpus``; see driver.nvml.health.calls.EventSet."""

    def __init__(self, pynvml: Any, ask: Ask, gpus: Iterable[tuple[Any, str]]) -> None:
        """Register for all events that each GPU has. A GPU that refuses is left out. Raises NvmlError."""
        self._pynvml = pynvml
        self._ask = ask
        self._closed = Event()
        self._waiting = Lock()
        self._set = ask(NODE_CALLS["watch_events"], "", pynvml.nvmlEventSetCreate)
        self._uuids: dict[int, str] = {}
        self._reported: dict[str, frozenset[EventKind]] = {}
        structured = set()
        try:
            for handle, uuid in gpus:
                kinds = self._register(handle, uuid)
                if kinds:
                    self._uuids[handle_number(handle)] = uuid
                    if self._register_structured(uuid):
                        structured.add(uuid)
                        kinds |= {"operational"}
                    self._reported[uuid] = kinds
        except NvmlCallFailed:
            self.close()
            self.free()
            raise
        # Drivers before R615 have nvmlEventSetWait_v2 alone; the first wait finds out.
        self._has_v3 = True
        self._incidents = Incidents(frozenset(structured))

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs whose events are delivered."""
        return frozenset(self._uuids.values())

    def kinds(self) -> Mapping[str, frozenset[EventKind]]:
        """The kinds of events that each of them reports."""
        return dict(self._reported)

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event. If a call fails, all events that came before are delivered before the error."""
        until = time.monotonic() + seconds
        while True:
            event = self._incidents.ready(time.monotonic())
            if event is not None:
                return event
            now = time.monotonic()
            due = self._incidents.due_in(now)
            left = min(_SLICE_SECONDS, max(until - now, 0.0), _SLICE_SECONDS if due is None else due)
            try:
                received = self._receive(left)
            except NvmlCallFailed:
                # Deliver what waits first. If NVML goes on failing, the next call raises the error.
                if due is None or self._closed.is_set():
                    raise
                self._incidents.release_all(time.monotonic())
                continue
            if received is not None:
                self._incidents.add(received, time.monotonic())
            elif time.monotonic() >= until and self._incidents.due_in(time.monotonic()) is None:
                return None

    def close(self) -> None:
        """End the wait of another thread. Makes no call, since NVML may hang; ``free`` comes later."""
        self._closed.set()

    def free(self, wait_seconds: float = 0.0) -> bool:
        """Free the set once it is closed and no wait is under way; whether that is so within the seconds."""
        if not self._closed.is_set() or not self._waiting.acquire(timeout=wait_seconds):
            return False
        events, self._set = self._set, None
        if events is not None:
            # What NVML does not free now goes with the session.
            with suppress(NvmlCallFailed):
                self._ask("nvmlEventSetFree", "", self._pynvml.nvmlEventSetFree, events)
        self._waiting.release()
        return True

    def _register(self, handle: Any, uuid: str) -> frozenset[EventKind]:
        """Register for the event bits of a GPU; returns the kinds that it reports."""
        call = GPU_CALLS["register_events"]
        try:
            # Asking for a bit that the GPU does not support would make the whole registration fail.
            supported = int(self._ask(call, uuid, self._pynvml.nvmlDeviceGetSupportedEventTypes, handle))
            wanted = supported & sum(_KINDS)
            if wanted:
                self._ask(call, uuid, self._pynvml.nvmlDeviceRegisterEvents, handle, wanted, self._set)
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return frozenset()
        return frozenset(kind for bit, kind in _KINDS.items() if wanted & bit)

    def _register_structured(self, uuid: str) -> bool:
        """Register for structured events (driver R615 and Turing, and newer); whether it reports them."""
        function = self._pynvml.nvmlEventSetRegisterGpuOperationalEvents_v1
        # Unlike the old call this one takes a UUID. NVML filters by level before it delivers.
        config = self._pynvml.c_nvmlGpuOperationalEventConfig_v1_t(uuid, _NOTICE, _CORRECTED)
        try:
            self._ask("nvmlEventSetRegisterGpuOperationalEvents_v1", uuid, function, self._set, config)
        except (SessionLost, DriverNotLoaded):
            raise
        except NvmlCallFailed:
            return False
        return True

    def _receive(self, seconds: float) -> Received | None:
        """The event that one call of NVML returns, None if none came in time."""
        # The lock is what ``close`` waits for, so hold it for the whole call.
        with self._waiting:
            if self._closed.is_set():
                raise SessionLost(_WAIT, Code.UNINITIALIZED)
            received = self._call(math.ceil(seconds * 1000)) if self._uuids else None
        if not self._uuids:
            # NVML refuses to wait on a set without GPUs.
            self._closed.wait(seconds)
        if self._closed.is_set():
            raise SessionLost(_WAIT, Code.UNINITIALIZED)
        return received

    def _call(self, milliseconds: int) -> Received | None:
        try:
            if self._has_v3:
                try:
                    return self._v3(milliseconds)
                except NotSupported:
                    self._has_v3 = False
            return self._v2(milliseconds)
        except NvmlCallFailed as error:
            # Nothing happened in this slice of time; that is no error.
            if error.code == Code.TIMEOUT:
                return None
            raise

    def _v2(self, milliseconds: int) -> Received:
        data = self._ask(_WAIT, "", self._pynvml.nvmlEventSetWait_v2, self._set, milliseconds)
        # An event without a known handle is about any GPU of the set.
        return Received(_old(data, self._uuids.get(handle_number(data.device), "")))

    def _v3(self, milliseconds: int) -> Received:
        data = self._pynvml.c_nvmlEventSetWait_v3_t(timeoutMs=milliseconds)
        self._ask("nvmlEventSetWait_v3", "", self._pynvml.nvmlEventSetWait_v3, self._set, data)
        # The binding may or may not decode the char array.
        uuid = data.uuid if isinstance(data.uuid, str) else data.uuid.decode()
        if int(data.dataType) != _STRUCTURED:
            return Received(_old(data, uuid))
        return Received(_structured(data, uuid, self._legacy_xid()), max(int(data.groupSize), 1))

    def _legacy_xid(self) -> int | None:
        """The XID of the event that was delivered last; None if it has none."""
        try:
            # NVML keeps the context of the last event alone, so it is read before the next wait.
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
            # The event itself says enough.
            return None
        return None

    def _context(self, name: str, parameters: Any) -> None:
        self._ask(name, "", getattr(self._pynvml, name), self._set, parameters)


def _old(data: Any, uuid: str) -> GpuEvent:
    """The event of an event bit of nvml.h."""
    # eventData is the XID of a critical error, and 0 in other events (nvml.h).
    kind = _KINDS.get(int(data.eventType), "operational")
    return GpuEvent(
        kind,
        uuid,
        int(data.eventData) if kind == "xid" else None,
        instance_id(data.gpuInstanceId),
        instance_id(data.computeInstanceId),
    )


def _structured(data: Any, uuid: str, xid: int | None) -> GpuEvent:
    attributes = int(data.attributes)
    return GpuEvent(
        "operational" if xid is None else "xid",
        uuid,
        xid,
        instance_id(data.gpuInstanceId),
        instance_id(data.computeInstanceId),
        severity=_SEVERITIES.get(int(data.severity)),
        # The driver reports an uncontained error by a bit, so its absence means contained.
        contained=not attributes & _UNCONTAINED,
        recovered=bool(int(data.groupAttributes) & _RECOVERED),
        component_reset=bool(attributes & _COMPONENT_RESET),
        dropped=bool(attributes & _OVERFLOW),
        incident=str(int(data.groupCursor) or ""),
    )
