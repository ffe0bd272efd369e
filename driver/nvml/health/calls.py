"""NVML's calls about a GPU's health, their answers as plain values, and the set that waits for events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

RecoveryAction = Literal[
    "none",
    "reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex",
    "bus-reset",
    "system-reboot",
]
"""What NVML recommends to make a GPU well again (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, values 0 to 7)."""

Severity = Literal["informational", "corrected", "recoverable", "fatal"]
"""How bad a GPU operational event is (driver R615 and newer; 10, 20, 30, 40)."""

EventKind = Literal["xid", "single-bit-ecc", "double-bit-ecc", "clock", "power-source", "operational"]
"""``operational`` carries no XID: a structured event, or one of NVML's newer bits (memory that was retired,
poison, a GPU that is unavailable, a recovery action), which say only that the GPUs have to be checked."""


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows of the GPU's memory that were replaced by spare ones (nvmlDeviceGetRemappedRows).

    ``pending``: a row waits for the next reset. ``failed``: there was no spare row left.
    """

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class EccErrors:
    """Errors of the GPU's memory since the driver was loaded (nvmlDeviceGetTotalEccErrors, volatile)."""

    corrected: int
    uncorrected: int


@dataclass(frozen=True, slots=True)
class FabricHealth:
    """How the GPU's part of the NVLink fabric is (nvmlDeviceGetGpuFabricInfoV, version 2 and newer).

    ``faults`` are words of what is wrong: ``degraded-bandwidth``, ``route-recovery``, ``route-unhealthy``,
    ``access-timeout``, ``wrong-configuration``; sorted. Unhealthy is what breaks jobs; a fault alone may not.
    """

    summary: Literal["healthy", "unhealthy", "limited-capacity", "unknown"]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NvLinkState:
    """One NVLink of a GPU: whether it is up, and its errors since the driver was loaded."""

    link: int
    active: bool
    replay_errors: int = 0
    recovery_errors: int = 0
    crc_errors: int = 0


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """Something that the NVIDIA driver reported of a GPU, in either of its two forms.

    ``uuid`` is the GPU's; empty for an event that names none, which then may be about any. ``xid`` is the
    code of a critical error, None for another kind. ``gpu_instance`` and ``compute_instance`` are NVML's ids
    where a partition is hit, else None. What only structured events tell is None or False in the others:
    ``severity``; ``contained`` (False: it spread beyond the work that caused it); ``recovered`` (the driver
    has dealt with it); ``component_reset`` (a part of the GPU was reset). ``dropped`` says that events were
    lost before this one, so that only a check tells how the GPUs are. ``incident`` tells two forms of
    one incident apart from two incidents, empty where NVML gives nothing for that.
    """

    kind: EventKind
    uuid: str
    xid: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    severity: Severity | None = None
    contained: bool | None = None
    recovered: bool = False
    component_reset: bool = False
    dropped: bool = False
    incident: str = ""


class HealthCalls(Protocol):
    """The part of a GPU's handle about its health; every call may raise NvmlError.

    NotSupported: the GPU or the NVIDIA driver does not tell.
    """

    def recovery_action(self) -> RecoveryAction | None:
        """What makes the GPU well again (nvmlDeviceGetFieldValues, field 230); None for an unknown answer."""
        ...

    def remapped_rows(self) -> RemappedRows:
        """Rows that were replaced (nvmlDeviceGetRemappedRows), Ampere and newer."""
        ...

    def retired_pages_pending(self) -> bool:
        """Whether a page waits for a reset to be retired (nvmlDeviceGetRetiredPagesPendingStatus)."""
        ...

    def unrepairable_memory(self) -> bool:
        """Whether the memory has what no reset repairs (nvmlDeviceGetUnrepairableMemoryFlag_v1, R615)."""
        ...

    def ecc_errors(self) -> EccErrors:
        """Errors of the memory since the driver was loaded (nvmlDeviceGetTotalEccErrors)."""
        ...

    def fabric_health(self) -> FabricHealth:
        """How the GPU's part of the fabric is (nvmlDeviceGetGpuFabricInfoV)."""
        ...

    def nvlink_states(self) -> tuple[NvLinkState, ...]:
        """All links that the GPU has, also those that are down (nvmlDeviceGetNvLinkState, field values).

        MIG mode takes links down on some GPUs, which is no fault.
        """
        ...


class EventSet(Protocol):
    """Events of some GPUs, from when it was made until ``close`` or the end of the session; one thread waits.

    Wait in a thread of its own, never in a worker of driver.nvml.deadline: a wait is meant to last.
    """

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs that report events; the other GPUs report none."""
        ...

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event, None when none came in time (nvmlEventSetWait_v2 or _v3).

        Raises GpuLost when a GPU of the set fell off the bus, after the events of before; SessionLost when
        the session has ended; and other NvmlError. A wait that fails does so at once, and the next one may:
        the caller pauses first, longer each time, and makes a new set, without the GPU that is lost.
        """
        ...

    def close(self) -> None:
        """Free the set; a ``wait`` of another thread ends with SessionLost within a second.

        A shutdown of the session does it, too. Once more does nothing.
        """
        ...


HEALTH_CALLS: dict[str, str] = {
    "recovery_action": "nvmlDeviceGetFieldValues",
    "remapped_rows": "nvmlDeviceGetRemappedRows",
    "retired_pages_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "unrepairable_memory": "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "ecc_errors": "nvmlDeviceGetTotalEccErrors",
    "fabric_health": "nvmlDeviceGetGpuFabricInfoV",
    "nvlink_states": "nvmlDeviceGetNvLinkState",
    "register_events": "nvmlDeviceRegisterEvents",
}
"""The calls about health: method of HealthCalls -> C function that errors name.

``register_events`` is what ``Nvml.watch_events`` calls for each GPU.
"""
