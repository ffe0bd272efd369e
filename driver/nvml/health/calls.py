"""The calls of NVML about a GPU's health, and the set by which events are waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from driver.nvml.health.values import (
        EccErrors,
        FabricHealth,
        GpuEvent,
        NvLinkState,
        RecoveryAction,
        RemappedRows,
    )


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

    It belongs into a thread of its own and into no lane of driver.nvml.deadline: a wait is meant to last.
    """

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs of which events come; of the others nobody hears anything."""
        ...

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event, None when none came in time (nvmlEventSetWait_v2 or _v3).

        Raises GpuLost when a GPU of the set fell off the bus, after the events of before; SessionLost when
        the session has ended; and other NvmlError. A wait that fails does so at once, and the next one may:
        whoever waits pauses first, longer each time, and makes a new set, without the GPU that is lost.
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
