"""Runs NVML calls under a deadline, so that one that hangs never blocks whoever asked.

A call into a wedged kernel driver cannot be interrupted, only left alone. Each GPU, and the node,
has a lane: one daemon thread that does its calls in turn. A lane whose call is overdue refuses at
once until that call has come back, so a lane never has more than one hung thread, and heals by itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from driver.errors import NvmlError
from driver.nvml.api import (
    GPU_CALLS,
    NODE_CALLS,
    DriverNotLoaded,
    NvmlCallFailed,
    NvmlTimeout,
    SessionLost,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Job = Callable[["Watch"], None]

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
"""A healthy call takes microseconds."""

LONG_CALLS = frozenset(
    {
        "set_mig_mode",
        "set_persistence_mode",
        "create_gpu_instance",
        "destroy_gpu_instance",
        "create_compute_instance",
        "destroy_compute_instance",
    }
)
"""Calls that change MIG or initialise a GPU: they take seconds on a healthy one, and are given more time."""

LONG_FACTOR = 6
"""How many deadlines such a call is given, and one that is made patiently."""

_TOLD_CALL = "set_mig_mode"
"""The one call that is told of: while it runs, calls of other processes into the GPU wait."""

_C_FUNCTIONS = NODE_CALLS | GPU_CALLS


class _Abandoned(BaseException):
    """Ends a job that nobody waits for any longer; no ``except`` of the job may catch it."""


@dataclass(slots=True, eq=False)
class _Run:
    """One job on its way through a lane; ``done`` is locked until it has ended."""

    job: Callable[[Watch], object]
    done: Lock = field(default_factory=Lock)
    result: object = None
    error: BaseException | None = None
    abandoned: bool = False


class Watch:
    """What a job makes its calls through: each one gets the full deadline of its own."""

    __slots__ = ("_lane", "_run")

    def __init__(self, lane: _Lane, run: _Run) -> None:
        self._lane = lane
        self._run = run

    def __call__(self, name: str, call: Callable[[], T], *, patient: bool = False) -> T:
        """Make the call; ``name`` is its method in driver.nvml.api and stands in a timeout's message.

        ``patient``: it may take long on a healthy GPU, as the first call of a session does on a GPU without
        persistence mode, which the kernel initialises then.
        """
        if self._run.abandoned:
            raise _Abandoned
        self._lane.begin(name, patient=patient)
        try:
            if name != _TOLD_CALL:
                return call()
            self._lane.tell(begins=True)
            try:
                return call()
            finally:
                self._lane.tell(begins=False)
        finally:
            self._lane.ended(name)


class _Lane:
    """One thread, its queue, and the call that it is in."""

    def __init__(self, key: str, guard: Guard) -> None:
        self.key = key
        self._guard = guard
        self.queue: SimpleQueue[_Run | None] = SimpleQueue()
        self.call = ""
        self.patient = False
        self.since = 0.0
        self.busy = False
        self.thread = Thread(target=self._work, name=f"nvml {key}", daemon=True)
        self.thread.start()

    def begin(self, call: str, *, patient: bool = False) -> None:
        self.since = time.monotonic()
        self.call = call
        self.patient = patient
        self.busy = True

    def tell(self, *, begins: bool) -> None:
        """Tell who listens that the change of MIG mode begins, or that nobody should wait for it any more."""
        self._guard.listener(self.key, begins)

    def ended(self, call: str) -> None:
        """Tell who counts how long a call took."""
        self._guard.counter(call, time.monotonic() - self.since)

    def overdue_in(self, deadline_seconds: float) -> float:
        """Seconds until the call under way is overdue; a full deadline while there is none."""
        if not self.busy:
            return deadline_seconds
        return self.since + self.allowed_seconds(deadline_seconds) - time.monotonic()

    def allowed_seconds(self, deadline_seconds: float) -> float:
        """How long the call under way may take."""
        is_long = self.patient or self.call in LONG_CALLS
        return deadline_seconds * LONG_FACTOR if is_long else deadline_seconds

    def _work(self) -> None:
        while (run := self.queue.get()) is not None:
            if not run.abandoned:
                self.begin("")
                try:
                    run.result = run.job(Watch(self, run))
                except BaseException as error:  # noqa: BLE001 - handed over to the thread that waits
                    run.error = error
                self.busy = False
            run.done.release()
            del run


class Pending(Generic[T]):
    """A job under way in a lane."""

    def __init__(self, lane: _Lane, run: _Run, deadline_seconds: float) -> None:
        self._lane = lane
        self._run = run
        self._deadline_seconds = deadline_seconds

    def result(self) -> T:
        """The job's result or its exception; NvmlTimeout once a call of the lane is overdue."""
        while True:
            left = self._lane.overdue_in(self._deadline_seconds)
            if self._run.done.acquire(timeout=max(left, 0.0)):
                break
            if self._lane.overdue_in(self._deadline_seconds) <= 0:
                self._run.abandoned = True
                if self._lane.call == _TOLD_CALL:
                    self._lane.tell(begins=False)
                raise _timeout(self._lane, self._deadline_seconds)
        if self._run.error is not None:
            raise self._run.error
        return self._run.result  # type: ignore[return-value]  # what Guard.start's job returned

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended; its result is still there to be taken."""
        if self._run.done.acquire(blocking=False):
            self._run.done.release()
            return True
        return False

    def call_seconds(self) -> float:
        """For how long the call that the lane is in has not returned; 0 while it is in none."""
        return time.monotonic() - self._lane.since if self._lane.busy else 0.0

    def give_up(self) -> NvmlTimeout:
        """Wait no longer: the job ends with the call that it is in. What there is to tell of that call."""
        self._run.abandoned = True
        call = self._lane.call
        return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), self._lane.key, self._deadline_seconds)


class Guard:
    """The lanes of one process. Threads start with the first use of a lane and end with ``close``.

    ``listener`` is called with the lane's key when a change of MIG mode begins, and when it has ended or is
    overdue; from other threads, perhaps twice. ``counter`` hears how many seconds each call took
    that came back.
    """

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.deadline_seconds = deadline_seconds
        self._lanes: dict[str, _Lane] = {}
        self._lock = Lock()
        self._closed = False
        self.listener: Callable[[str, bool], None] = lambda _key, _begins: None
        self.counter: Callable[[str, float], None] = lambda _call, _seconds: None

    def start(self, key: str, job: Callable[[Watch], T]) -> Pending[T]:
        """Put a job into the lane; raises NvmlTimeout at once while a call of that lane is overdue."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the guard is closed")
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane(key, self)
            if lane.overdue_in(self.deadline_seconds) <= 0:
                raise _timeout(lane, self.deadline_seconds)
            run = _Run(job)
            run.done.acquire()
            lane.queue.put(run)
        return Pending(lane, run, self.deadline_seconds)

    def run(self, key: str, job: Callable[[Watch], T]) -> T:
        """Do a job in the lane and wait for it; raises what the job raises, or NvmlTimeout."""
        return self.start(key, job).result()

    def side_by_side(self, jobs: Mapping[str, Callable[[Watch], T]]) -> dict[str, T | NvmlCallFailed]:
        """Do jobs in their lanes all at once; what each gives, or why it gives nothing."""
        found: dict[str, T | NvmlCallFailed] = {}
        pending: dict[str, Pending[T]] = {}
        for key, job in jobs.items():
            try:
                pending[key] = self.start(key, job)
            except NvmlTimeout as overdue:
                found[key] = overdue
        for key, one in pending.items():
            try:
                found[key] = one.result()
            except NvmlCallFailed as error:
                found[key] = error
        return found

    def forget(self, key: str) -> None:
        """Let a lane's thread end after the jobs it has; whoever comes next gets another one.

        A claim may name any address, and each would have a thread for good.
        """
        with self._lock:
            lane = self._lanes.pop(key, None)
            if lane is not None:
                lane.queue.put(None)

    def hung(self) -> tuple[str, ...]:
        """The lanes whose call is overdue now, sorted."""
        with self._lock:
            lanes = list(self._lanes.values())
        return tuple(sorted(lane.key for lane in lanes if lane.overdue_in(self.deadline_seconds) <= 0))

    def close(self) -> None:
        """Let every lane's thread end after the jobs it has; a hung one is left behind as a daemon."""
        with self._lock:
            self._closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.queue.put(None)
        for lane in lanes:
            lane.thread.join(timeout=max(lane.overdue_in(self.deadline_seconds), 0.0))


class Lanes:
    """The jobs of one look after another, each in its lane of the guard. Used by one thread at a time."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._slow: dict[str, Pending[None]] = {}

    def finish(self, jobs: Mapping[str, Job], *, is_first: bool) -> dict[str, NvmlError]:
        """Do the jobs and wait for all of them; what went wrong, by lane. ``is_first`` is it in a session.

        Raises SessionLost and DriverNotLoaded, which concern the whole node.
        """
        ended = SimpleQueue[str]()
        started = {lane: self._start(lane, job, ended) for lane, job in jobs.items()}
        if is_first:
            self._wait_for_first(started, ended)
        failures = {}
        for lane, one in started.items():
            try:
                if isinstance(one, NvmlTimeout):
                    raise one
                one.result()
            except (SessionLost, DriverNotLoaded):
                raise
            except NvmlError as error:
                failures[lane] = error
        return failures

    def unanswered(self) -> tuple[str, ...]:
        """The lanes with a call that nobody waits for any longer, and that has not returned."""
        return tuple(lane for lane, one in self._slow.items() if not one.has_ended)

    def _start(self, lane: str, job: Job, ended: SimpleQueue[str]) -> Pending[None] | NvmlTimeout:
        """Begin a job, whose lane is put into ``ended`` when it is over.

        While a call that was given up is under way in its lane, none is begun: it may have much time left.
        """

        def told(watch: Watch) -> None:
            try:
                job(watch)
            finally:
                ended.put(lane)

        slow = self._slow.pop(lane, None)
        if slow is not None and not slow.has_ended:
            self._slow[lane] = slow
            return slow.give_up()
        try:
            return self._guard.start(lane, told)
        except NvmlTimeout as overdue:
            return overdue

    def _wait_for_first(
        self, started: dict[str, Pending[None] | NvmlTimeout], ended: SimpleQueue[str]
    ) -> None:
        """Wait for the first jobs of a session, for as long as one after the other ends; give up the rest.

        The kernel initialises a GPU without persistence mode with its first handle, which takes seconds, one
        GPU at a time. So the first to answer is waited for with patience, and each of the others for as long
        after the one before, and the time of a call. Those that have answered then are offered, and the
        others when a later look finds them ready.
        """
        waiting = {lane: one for lane, one in started.items() if isinstance(one, Pending)}
        began, deadline_seconds = time.monotonic(), self._guard.deadline_seconds
        wait_seconds, nobody_yet = deadline_seconds * LONG_FACTOR, True
        while waiting:
            try:
                del waiting[ended.get(timeout=wait_seconds)]
                if nobody_yet:
                    wait_seconds, nobody_yet = deadline_seconds + time.monotonic() - began, False
            except Empty:
                if all(one.call_seconds() >= wait_seconds for one in waiting.values()):
                    break
        for lane, pending in waiting.items():
            self._slow[lane] = pending
            started[lane] = pending.give_up()


def _timeout(lane: _Lane, deadline_seconds: float) -> NvmlTimeout:
    call = lane.call
    allowed = lane.allowed_seconds(deadline_seconds)
    return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), lane.key, allowed)
