"""What the kubelet asks for one claim, and the answer: the interface between gRPC and the work on claims."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

_ENDS_AT: ContextVar[float] = ContextVar("ends_at", default=math.inf)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The claim that the kubelet means. The UID tells it from a later claim of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device that is ready for containers."""

    # Requests of the claim as in the allocation, req or req/sub; empty means all.
    request_names: tuple[str, ...]
    pool: str
    device: str
    # Qualified CDI names, vendor/class=device.
    cdi_device_ids: tuple[str, ...]
    # Only for a share, of which the allocation may have several with the same device.
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the kubelet, by which the work can find out whether the kubelet still waits for it."""

    # When it came in, by CLOCK_BOOTTIME.
    started_ns: int
    # False once the kubelet has given up.
    is_active: Callable[[], bool]
    # The time until it will give up, never negative, and years if it set no deadline.
    remaining_seconds: Callable[[], float]
    # When this run of the kubelet registered the plugin, by the same clock; 0 if unknown.
    registered_ns: int = 0


@contextmanager
def answered_by(ends_at: float) -> Iterator[None]:
    """In the block this thread works for a call that must be answered by this time (monotonic clock)."""
    before = _ENDS_AT.set(ends_at)
    try:
        yield
    finally:
        _ENDS_AT.reset(before)


def left_of_call(most_seconds: float) -> float:
    """What is left of the call that this thread works for, but at most so many seconds; never negative."""
    return max(0.0, min(most_seconds, _ENDS_AT.get() - time.monotonic()))


class Claims(Protocol):
    """Prepares and unprepares claims; called from many threads at once, also for the same claim.

    Both methods raise DriverError, whose text is shown in the pod's events.
    """

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices usable and return them; a repeated call returns the same ones."""
        ...

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Undo what prepare did; succeeds if there is nothing to do, since the kubelet repeats calls."""
        ...
