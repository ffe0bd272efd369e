"""What NVML says of a GPU's health, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
poison, a GPU that is unavailable, a recovery action), which say no more than that a look is due."""


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
    """Something that the NVIDIA driver told of a GPU, in either of its two forms.

    ``uuid`` is the GPU's; empty for an event that names none, which then may be about any. ``xid`` is the
    code of a critical error, None for another kind. ``gpu_instance`` and ``compute_instance`` are NVML's ids
    where a partition is hit, else None. What only structured events tell is None or False in the others:
    ``severity``; ``contained`` (False: it spread beyond the work that caused it); ``recovered`` (the driver
    has dealt with it); ``component_reset`` (a part of the GPU was reset). ``dropped`` says that events were
    lost before this one, so that nothing but a look tells how the GPUs are. ``incident`` tells two forms of
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
