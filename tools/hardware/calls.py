"""Makes NVML calls for the verification: each is noted, and a call that hangs is given up and named."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TypeVar, cast

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, Nvml, NvmlCallFailed, NvmlDevice
from driver.nvml.deadline import Watch
from driver.nvml.health.calls import EventSet, GpuEvent
from driver.nvml.pci_address import PciAddress

T = TypeVar("T")

_C_FUNCTIONS = NODE_CALLS | GPU_CALLS

READS = tuple(
    name
    for name in GPU_CALLS
    if hasattr(NvmlDevice, name) and len(inspect.signature(getattr(NvmlDevice, name)).parameters) == 1
)
"""The methods of NvmlDevice that ask something and need no arguments; what a GPU is comes first."""


class UnreadableAnswer(NvmlCallFailed):
    """A call succeeded, and what it answered makes no sense: a text that is none, a number out of range."""

    def __init__(self, call: str, code: int, subject: str = "") -> None:
        super().__init__(call, code, subject)
        self.what = f"{call}{f' of {subject}' if subject else ''} gave an answer that cannot be read"


@dataclass(frozen=True, slots=True)
class NotedCall:
    """One call of a method of driver.nvml.api that has returned.

    ``function`` is the C function that errors name; ``subject`` is the GPU, empty for the node. ``code`` is
    NVML's return code, None if the call succeeded. Then ``answer`` is what it returned.
    """

    method: str
    function: str
    subject: str
    arguments: tuple[object, ...]
    code: int | None
    answer: object
    milliseconds: float


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that has not returned yet; ``began`` is a time of the monotonic clock, in seconds."""

    method: str
    function: str
    subject: str
    began: float

    def __str__(self) -> str:
        return f"{self.function} of {self.subject}" if self.subject else self.function


class NotedCalls:
    """Notes each call that is made through ``nvml``, which does what the given NVML does. Thread-safe.

    With ``watch`` each call has a deadline: it must then be used in the job of that watch.
    """

    def __init__(self, nvml: Nvml, watch: Watch | None = None) -> None:
        self._lock = Lock()
        self._watch = watch
        self._returned: list[NotedCall] = []
        self._running: dict[int, RunningCall] = {}
        self._next = 0
        # It passes on every call by name, so it has all methods of the protocol, which no type checker sees.
        self.nvml = cast("Nvml", _NotedNvml(self, nvml))

    @property
    def calls(self) -> tuple[NotedCall, ...]:
        """The calls that have returned, in the order in which they returned."""
        with self._lock:
            return tuple(self._returned)

    @property
    def running(self) -> tuple[RunningCall, ...]:
        """The calls that have not returned yet, the oldest first."""
        with self._lock:
            return tuple(self._running.values())

    def make(self, method: str, subject: str, call: Callable[..., T], *arguments: object) -> T:
        """Make a call and note it; raises what the call raises."""
        function = _C_FUNCTIONS[method]
        began = time.monotonic()
        with self._lock:
            self._next += 1
            number = self._next
            self._running[number] = RunningCall(method, function, subject, began)
        code: int | None = None
        answer: T | None = None
        try:
            answer = self._made(method, partial(call, *arguments))
            return answer
        except NvmlCallFailed as error:
            code = error.code
            raise
        except (ValueError, LookupError) as error:
            code = Code.UNKNOWN
            raise UnreadableAnswer(function, code, subject) from error
        finally:
            milliseconds = (time.monotonic() - began) * 1000
            with self._lock:
                del self._running[number]
                self._returned.append(
                    NotedCall(method, function, subject, arguments, code, answer, milliseconds)
                )

    def _made(self, method: str, call: Callable[[], T]) -> T:
        return call() if self._watch is None else self._watch(method, call)


class _NotedNvml:
    """An Nvml whose calls are noted, and whose devices and event sets are noted, too."""

    def __init__(self, notes: NotedCalls, nvml: Nvml) -> None:
        self._notes, self._nvml = notes, nvml

    def __getattr__(self, method: str) -> Callable[..., object]:
        return partial(self._notes.make, method, "", getattr(self._nvml, method))

    def device_by_index(self, index: int) -> _NotedDevice:
        subject = f"GPU {index}"
        device = self._notes.make("device_by_index", subject, self._nvml.device_by_index, index)
        return _NotedDevice(self._notes, device, subject)

    def device_by_pci(self, pci: PciAddress) -> _NotedDevice:
        device = self._notes.make("device_by_pci", str(pci), self._nvml.device_by_pci, pci)
        return _NotedDevice(self._notes, device, str(pci))

    def watch_events(self, devices: Sequence[NvmlDevice]) -> _NotedEventSet:
        # An implementation takes its own devices alone.
        own = [one.device if isinstance(one, _NotedDevice) else one for one in devices]
        subject = ", ".join(one.subject for one in devices if isinstance(one, _NotedDevice))
        events = self._notes.make("watch_events", subject, self._nvml.watch_events, own)
        return _NotedEventSet(self._notes, events, subject)


class _NotedDevice:
    """An NvmlDevice whose calls are noted."""

    def __init__(self, notes: NotedCalls, device: NvmlDevice, subject: str) -> None:
        self._notes, self.device, self.subject = notes, device, subject

    def pci(self) -> PciAddress:
        # From here on the GPU has a name that means something to people.
        pci = self._notes.make("pci", self.subject, self.device.pci)
        self.subject = str(pci)
        return pci

    def __getattr__(self, method: str) -> Callable[..., object]:
        return partial(self._notes.make, method, self.subject, getattr(self.device, method))


class _NotedEventSet:
    """An EventSet whose waits are noted."""

    def __init__(self, notes: NotedCalls, events: EventSet, subject: str) -> None:
        self._notes, self._events, self._subject = notes, events, subject
        self.watched, self.kinds, self.close = events.watched, events.kinds, events.close

    def wait(self, seconds: float) -> GpuEvent | None:
        return self._notes.make("wait_events", self._subject, self._events.wait, seconds)
