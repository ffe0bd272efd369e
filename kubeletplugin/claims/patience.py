"""Repeats the work of a call while its error may pass by itself and the kubelet still waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from driver.errors import ApiError, DeviceHeld, DriverError, NodeIncomplete, NvmlError
from driver.fabric.api import FabricError
from driver.nvml.api import GpuLost, NotFound
from kubeletplugin.devices.fabric.matching import PartitionTaken
from kubeletplugin.devices.kinds.partition.gpu_instances import InstanceInUse
from kubeletplugin.devices.vfio.failures import FunctionInUse
from kubeletplugin.kubelet.wire.claim_call import Call
from kubeletplugin.kubelet.wire.controllers import NotLetGo
from kubeletplugin.sharing.gpus import NotReady

T = TypeVar("T")

_WAITED_FOR = (
    ApiError, DeviceHeld, FabricError, FunctionInUse, InstanceInUse, NodeIncomplete, NotLetGo, NotReady,
    NvmlError, PartitionTaken,
)  # fmt: skip
_NOT_SOON = (GpuLost, NotFound)
_FIRST_DELAY_SECONDS = 0.25
_LONGEST_DELAY_SECONDS = 2.0
_ANSWER_SECONDS = 2.0
LOCK_SECONDS = 40.0
_MOST_WAITING = 12
"""Calls that may wait at once: the server's other workers stay free, above all for unprepare."""


class Patience:
    """``wait(seconds)`` returns when some claim lets go of its devices, or after the time."""

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
        """The work's result; raises its DriverError if that does not pass within ``seconds``.

        ``complain`` hears the first error that is waited for.
        """
        end = time.monotonic() + min(seconds, call.remaining_seconds() - _ANSWER_SECONDS)
        delay_seconds = _FIRST_DELAY_SECONDS
        while True:
            try:
                return work()
            except _WAITED_FOR as error:
                hopeless = not error.retryable or isinstance(error, _NOT_SOON)
                if hopeless or time.monotonic() + delay_seconds > end or not call.is_active():
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
    """How long a call may wait for locks: after its deadline the kubelet takes no answer."""
    return max(0.0, min(LOCK_SECONDS, call.remaining_seconds() - _ANSWER_SECONDS))
