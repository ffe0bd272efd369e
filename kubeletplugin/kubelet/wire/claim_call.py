"""What one call of the kubelet asks for a claim, and what it gets: the seam between gRPC and the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Which claim the kubelet means. The UID tells a claim from a later one of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device that is ready for containers.

    ``request_names`` are requests of the claim as the allocation has them (``req`` or ``req/sub``),
    none meaning all; ``cdi_device_ids`` are qualified CDI names; ``share_id`` is set for a share.
    """

    request_names: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the kubelet, so that the work can tell whether anybody still waits for it.

    ``started_ns`` is when it came in (CLOCK_BOOTTIME, nanoseconds). ``is_active`` says False once
    the kubelet gave up. ``remaining_seconds`` is the time until it will, never negative, and years
    when it set no deadline. ``registered_ns`` is when the kubelet registered the plugin, by the same clock as
    ``started_ns``: it has done so since it began to run. 0 is for not known.
    """

    started_ns: int
    is_active: Callable[[], bool]
    remaining_seconds: Callable[[], float]
    registered_ns: int = 0


class Claims(Protocol):
    """Prepares and unprepares claims; called from many threads at once, also for the same claim.

    Both raise DriverError when they cannot; its text reaches the pod's events.
    """

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices usable and say which they are; the same again on a repeated call."""
        ...

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Take back what prepare did; nothing to do is success, since the kubelet repeats calls."""
        ...
