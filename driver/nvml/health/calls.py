"""NVML's calls about a GPU's health, their answers as plain values, and the set that waits for events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

RecoveryAction = Literal[
    "none",
    "reset",
    "node-reboot",
    # End all peer-to-peer work with the GPU.
    "drain-p2p",
    # End the work first, then reset.
    "drain-and-reset",
    "recover-imex",
    # A reset of the PCIe bus.
    "bus-reset",
    "system-reboot",
]
"""What NVML recommends to make a GPU healthy again (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, values 0 to 7)."""

Severity = Literal["informational", "corrected", "recoverable", "fatal"]
"""How bad a GPU operational event is (driver R615 and newer; 10, 20, 30, 40)."""

EventKind = Literal["xid", "single-bit-ecc", "double-bit-ecc", "clock", "power-source", "operational"]
"""``operational`` has no XID. It is a structured event, or one of NVML's newer event bits (retired memory,
poison, a GPU that is unavailable, a recovery action), which say only that the GPUs have to be checked."""


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows of the GPU's memory that were replaced by spare ones (nvmlDeviceGetRemappedRows)."""

    corrected: int
    uncorrected: int
    # A row waits for the next reset.
    pending: bool
    # There was no spare row left.
    failed: bool


@dataclass(frozen=True, slots=True)
class EccErrors:
    """Errors of the GPU's memory since the driver was loaded (nvmlDeviceGetTotalEccErrors, volatile)."""

    corrected: int
    uncorrected: int


@dataclass(frozen=True, slots=True)
class FabricHealth:
    """The health of the GPU's part of the NVLink fabric (nvmlDeviceGetGpuFabricInfoV, version 2 and newer).

    ``faults`` are words for what is wrong: ``degraded-bandwidth``, ``route-recovery``, ``route-unhealthy``,
    ``access-timeout``, ``wrong-configuration``; sorted. ``unhealthy`` means that jobs fail; a fault alone
    need not mean that.
    """

    summary: Literal["healthy", "unhealthy", "limited-capacity", "unknown"]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that the NVIDIA driver reported about a GPU, as an event bit or as a structured event."""

    kind: EventKind
    # Empty if the event names no GPU; then it may be about any.
    uuid: str
    # The code of a critical error.
    xid: int | None = None
    # NVML's ids of the partition that is affected, None if it is the whole GPU.
    gpu_instance: int | None = None
    compute_instance: int | None = None
    # Only structured events have the fields from here on; in others they are None or False.
    severity: Severity | None = None
    # False: it spread beyond the work that caused it.
    contained: bool | None = None
    # The driver has dealt with it.
    recovered: bool = False
    # A part of the GPU was reset.
    component_reset: bool = False
    # Events were lost before this one, so the GPUs have to be checked.
    dropped: bool = False
    # The same in all events of one incident, empty if NVML gives none.
    incident: str = ""


class HealthCalls(Protocol):
    """The part of a GPU's handle about its health; every call may raise NvmlError.

    NotSupported: the GPU or the NVIDIA driver does not report it.
    """

    def recovery_action(self) -> RecoveryAction | None:
        """What makes the GPU healthy again (nvmlDeviceGetFieldValues, field 230); None: an unknown answer."""
        ...

    def remapped_rows(self) -> RemappedRows:
        """Rows that were replaced (nvmlDeviceGetRemappedRows), Ampere and newer."""
        ...

    def retired_pages_pending(self) -> bool:
        """Whether a page waits for a reset to be retired (nvmlDeviceGetRetiredPagesPendingStatus)."""
        ...

    def unrepairable_memory(self) -> bool:
        """Whether the memory has errors that no reset repairs.

        (nvmlDeviceGetUnrepairableMemoryFlag_v1, driver R615 and newer)
        """
        ...

    def ecc_errors(self) -> EccErrors:
        """Errors of the memory since the driver was loaded (nvmlDeviceGetTotalEccErrors)."""
        ...

    def fabric_health(self) -> FabricHealth:
        """The health of the GPU's part of the fabric (nvmlDeviceGetGpuFabricInfoV)."""
        ...


class EventSet(Protocol):
    """The events of some GPUs, from its creation until ``close`` or the end of the session.

    Only one thread may wait. It must not be a worker of driver.nvml.deadline, since a wait is meant to last.
    """

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs that report events; the other GPUs report none."""
        ...

    def kinds(self) -> Mapping[str, frozenset[EventKind]]:
        """The kinds of events that each watched GPU reports, by UUID (nvmlDeviceGetSupportedEventTypes)."""
        ...

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event, None if none came in time (nvmlEventSetWait_v2 or _v3).

        Raises GpuLost if a GPU of the set fell off the bus, once all earlier events are delivered;
        SessionLost if the session has ended; and other NvmlError. A wait that fails does so at once, and may
        fail again at once. So the caller pauses, longer each time, and makes a new set without the lost GPU.
        """
        ...

    def close(self) -> None:
        """End the set; a ``wait`` in another thread ends with SessionLost within a second.

        Neither waits nor fails: the set is freed when the next one is made, or with the session, which closes
        it, too. Closing it again does nothing.
        """
        ...


HEALTH_CALLS: dict[str, str] = {
    "recovery_action": "nvmlDeviceGetFieldValues",
    "remapped_rows": "nvmlDeviceGetRemappedRows",
    "retired_pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "unrepairable_memory": "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "ecc_errors": "nvmlDeviceGetTotalEccErrors",
    "fabric_health": "nvmlDeviceGetGpuFabricInfoV",
    "register_events": "nvmlDeviceRegisterEvents",
}
"""The calls about health: method of HealthCalls -> C function that errors name.

``register_events`` is what ``Nvml.watch_events`` calls for each GPU.
"""
