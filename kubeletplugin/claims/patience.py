"""Repeats the work of a call while its error may pass by itself and the kubelet still waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from driver.errors import ApiError, DeviceHeld, DriverError, NodeIncomplete, NvmlError
from driver.fabric.api import FabricError
from driver.kube.errors import Forbidden
from driver.nvml.api import GpuLost, NotFound
from kubeletplugin.devices.fabric.matching import PartitionTaken
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse
from kubeletplugin.devices.vfio.users import FunctionInUse
from kubeletplugin.kubelet.wire.claim_call import Call, answered_by
from kubeletplugin.kubelet.wire.controllers import NotLetGo
from kubeletplugin.sharing.gpus import NotReady

T = TypeVar("T")

# Errors that often pass within seconds: another claim's pod ends, a process exits, the API server comes back.
_PASSING = (
    ApiError, DeviceHeld, FabricError, FunctionInUse, InstanceInUse, NodeIncomplete, NotLetGo, NotReady,
    NvmlError, PartitionTaken,
)  # fmt: skip
# NvmlErrors as well, but NVML does not know these GPUs: waiting some seconds brings none of them back.
_LASTING = (GpuLost, NotFound)
_FIRST_DELAY_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 2.0
# Kept free before the kubelet's deadline: an answer that comes after it is thrown away.
_ANSWER_SECONDS = 2.0
# The kubelet gives up a call after 45 s.
LOCK_SECONDS = 40.0
# A waiting call keeps a worker of the gRPC server busy. The others stay free, above all for unprepare, which
# may be just what the waiting calls wait for.
_MOST_WAITING = 12


class Patience:
    """Repeats calls. ``wait(seconds)`` returns when some claim releases its devices, or after the time."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)

    def until_done(
        self,
        call: Call,
        work: Callable[[], T],
        seconds: float,
        complain: Callable[[DriverError], None] | None = None,
    ) -> T:
        """Return the work's result. Raises its DriverError if that does not pass within ``seconds``.

        ``complain`` is called once, with the first error that is waited for.
        """
        ends_at = time.monotonic() + call.remaining_seconds() - _ANSWER_SECONDS
        end = min(time.monotonic() + seconds, ends_at)
        delay_seconds = _FIRST_DELAY_SECONDS
        while True:
            try:
                with answered_by(ends_at):
                    return work()
            except _PASSING as error:
                # An API server that has just started forbids everything until it has read the roles.
                passes = isinstance(error, Forbidden) or (error.retryable and not isinstance(error, _LASTING))
                if not passes or time.monotonic() + delay_seconds > end or not call.is_active():
                    raise
                if complain is not None:
                    complain(error)
                    complain = None
                if not self._waiting.acquire(blocking=False):
                    raise
            try:
                self._wait(delay_seconds)
            finally:
                self._waiting.release()
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)


def lock_seconds(call: Call) -> float:
    """How long a call may wait for locks, so that its answer still comes before the kubelet's deadline."""
    return max(0.0, min(LOCK_SECONDS, call.remaining_seconds() - _ANSWER_SECONDS))
