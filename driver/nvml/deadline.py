"""Makes NVML calls in worker threads under a deadline, so that a call that hangs never blocks its caller.

A call into a wedged kernel driver cannot be interrupted, only abandoned. Each GPU has a worker, and so has
the node: one daemon thread that makes its calls one after the other. While a call of a worker is overdue, the
worker refuses new jobs at once. So a GPU never has more than one hung thread, and its worker recovers by
itself when the call returns.
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
"""How long one call may take. A healthy call takes microseconds."""

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
"""Calls that change MIG or initialise a GPU. They take seconds on a healthy GPU and get more time."""

LONG_FACTOR = 6
"""How many times the deadline a long call, or a patient one, may take."""

# While the kernel changes the MIG mode, calls of other processes into the GPU wait. The plugin tells the
# controller, so that it does not take the GPU for a hung one.
_ANNOUNCED_CALL = "set_mig_mode"

_C_FUNCTIONS = NODE_CALLS | GPU_CALLS


class _Abandoned(BaseException):
    """Ends a job whose caller no longer waits; no ``except Exception`` of the job can catch it."""


@dataclass(slots=True, eq=False)
class _Run:
    """One job in a worker's queue. ``done`` is locked until the job has ended."""

    job: Callable[[Watch], object]
    done: Lock = field(default_factory=Lock)
    result: object = None
    error: BaseException | None = None
    abandoned: bool = False


class Watch:
    """Makes the NVML calls of one job. Each call has the whole deadline for itself."""

    __slots__ = ("_run", "_worker")

    def __init__(self, worker: _Worker, run: _Run) -> None:
        self._worker = worker
        self._run = run

    def __call__(self, name: str, call: Callable[[], T], *, patient: bool = False) -> T:
        """Make a call and return its answer. ``name`` is its method in driver.nvml.api.

        ``patient`` gives it more time, for a call that may be slow on a healthy GPU. Without persistence
        mode, the kernel initialises a GPU at the first call of a session, which takes seconds.
        """
        if self._run.abandoned:
            # The caller has had its NvmlTimeout. The job must not go on and change hardware behind its back.
            raise _Abandoned
        self._worker.begin(name, patient=patient)
        try:
            if name != _ANNOUNCED_CALL:
                return call()
            self._worker.announce(begins=True)
            try:
                return call()
            finally:
                self._worker.announce(begins=False)
        finally:
            self._worker.ended(name)


class _Worker:
    """One thread, its queue, and its current call."""

    def __init__(self, key: str, guard: Guard) -> None:
        self.key = key
        self._guard = guard
        self.queue: SimpleQueue[_Run | None] = SimpleQueue()
        self.call = ""
        self.patient = False
        self.since = 0.0
        self.busy = False
        # A daemon, since a thread in a hung call can never be joined and must not keep the process from
        # ending.
        self.thread = Thread(target=self._work, name=f"nvml {key}", daemon=True)
        self.thread.start()

    def begin(self, call: str, *, patient: bool = False) -> None:
        self.since = time.monotonic()
        self.call = call
        self.patient = patient
        # Last, since other threads read these fields without a lock: they look at them only while it is true.
        self.busy = True

    def announce(self, *, begins: bool) -> None:
        """Report that a change of MIG mode begins, or that it has ended or is overdue."""
        self._guard.on_mode_change(self.key, begins)

    def ended(self, call: str) -> None:
        """Report how long a call took."""
        self._guard.on_call(call, time.monotonic() - self.since)

    def overdue_in(self, deadline_seconds: float) -> float:
        """Seconds until the current call is overdue; the full deadline if there is no call."""
        if not self.busy:
            return deadline_seconds
        return self.since + self.allowed_seconds(deadline_seconds) - time.monotonic()

    def allowed_seconds(self, deadline_seconds: float) -> float:
        """How long the current call may take."""
        is_long = self.patient or self.call in LONG_CALLS
        return deadline_seconds * LONG_FACTOR if is_long else deadline_seconds

    def _work(self) -> None:
        while (run := self.queue.get()) is not None:
            if not run.abandoned:
                # The job itself, between its calls, has a deadline as well.
                self.begin("")
                try:
                    run.result = run.job(Watch(self, run))
                except BaseException as error:  # noqa: BLE001 - handed over to the thread that waits
                    run.error = error
                self.busy = False
            run.done.release()
            # queue.get() may block for hours. Without this the thread would keep the last result alive
            # meanwhile.
            del run


class Pending(Generic[T]):
    """A job that a worker does or will do."""

    def __init__(self, worker: _Worker, run: _Run, deadline_seconds: float) -> None:
        self._worker = worker
        self._run = run
        self._deadline_seconds = deadline_seconds

    def result(self) -> T:
        """The job's result or its exception; NvmlTimeout once a call of the worker is overdue."""
        while True:
            left = self._worker.overdue_in(self._deadline_seconds)
            # A lock rather than an Event or a Future: one is made for every job, and a bare lock costs the
            # least.
            if self._run.done.acquire(timeout=max(left, 0.0)):
                break
            # Check again: each call of the job has the whole deadline, and earlier jobs of the worker come
            # first.
            if self._worker.overdue_in(self._deadline_seconds) <= 0:
                self._run.abandoned = True
                if self._worker.call == _ANNOUNCED_CALL:
                    self._worker.announce(begins=False)
                raise _timeout(self._worker, self._deadline_seconds)
        self._run.done.release()
        if self._run.error is not None:
            raise self._run.error
        return self._run.result  # type: ignore[return-value]  # what Guard.start's job returned

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended. ``result`` may still be called."""
        if self._run.done.acquire(blocking=False):
            self._run.done.release()
            return True
        return False

    def call_seconds(self) -> float:
        """For how long the worker's current call has been running; 0 if there is none."""
        return time.monotonic() - self._worker.since if self._worker.busy else 0.0

    def give_up(self) -> NvmlTimeout:
        """Stop waiting: the job ends with its current call. Returns the timeout to report for that call."""
        self._run.abandoned = True
        call = self._worker.call
        return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), self._worker.key, self._deadline_seconds)


class Guard:
    """The workers of one process. A worker's thread starts with its first job and ends with ``close``.

    ``on_mode_change`` is called with a worker's key when a change of MIG mode begins, and again when it has
    ended or is overdue, perhaps twice, from any thread. ``on_call`` is called with the name and the seconds
    of each call that returned.
    """

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.deadline_seconds = deadline_seconds
        self._workers: dict[str, _Worker] = {}
        self._lock = Lock()
        self._closed = False
        self.on_mode_change: Callable[[str, bool], None] = lambda _key, _begins: None
        self.on_call: Callable[[str, float], None] = lambda _call, _seconds: None

    def start(self, key: str, job: Callable[[Watch], T]) -> Pending[T]:
        """Give a worker a job. Raises NvmlTimeout at once if a call of that worker is overdue."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the guard is closed")
            worker = self._workers.get(key)
            if worker is None:
                worker = self._workers[key] = _Worker(key, self)
            if worker.overdue_in(self.deadline_seconds) <= 0:
                raise _timeout(worker, self.deadline_seconds)
            run = _Run(job)
            # Taken here and released by the worker, which a plain Lock allows.
            run.done.acquire()
            worker.queue.put(run)
        return Pending(worker, run, self.deadline_seconds)

    def run(self, key: str, job: Callable[[Watch], T]) -> T:
        """Give a worker a job and wait for its result. Raises what the job raises, or NvmlTimeout."""
        return self.start(key, job).result()

    def side_by_side(self, jobs: Mapping[str, Callable[[Watch], T]]) -> dict[str, T | NvmlCallFailed]:
        """Do jobs at the same time, each in its worker. Returns the result or the error of each."""
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
        """End a worker's thread after the jobs that it has. A later job gets a new worker.

        Claims may name any address, and without this every address would keep a thread for ever.
        """
        with self._lock:
            # A hung thread ends too, once its call returns: the None waits in its queue.
            worker = self._workers.pop(key, None)
            if worker is not None:
                worker.queue.put(None)

    def hung(self) -> tuple[str, ...]:
        """The keys of the workers whose call is overdue now, sorted."""
        with self._lock:
            workers = list(self._workers.values())
        return tuple(
            sorted(worker.key for worker in workers if worker.overdue_in(self.deadline_seconds) <= 0)
        )

    def close(self) -> None:
        """End every worker's thread after the jobs that it has. A hung thread is left behind as a daemon."""
        with self._lock:
            self._closed = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.queue.put(None)
        for worker in workers:
            # Wait only as long as a call may still take. A hung one would never end.
            worker.thread.join(timeout=max(worker.overdue_in(self.deadline_seconds), 0.0))


class Workers:
    """Does the jobs of one check of all GPUs, each in its worker, and remembers which calls were abandoned.

    Not thread-safe.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._slow: dict[str, Pending[None]] = {}

    def finish(self, jobs: Mapping[str, Job], *, is_first: bool) -> dict[str, NvmlError]:
        """Do the jobs, wait for all of them and return their errors by worker.

        ``is_first`` is true for the first check of a session. Raises SessionLost and DriverNotLoaded, which
        concern the whole node.
        """
        ended = SimpleQueue[str]()
        started = {worker: self._start(worker, job, ended) for worker, job in jobs.items()}
        if is_first:
            self._wait_for_first(started, ended)
        failures = {}
        for worker, one in started.items():
            try:
                if isinstance(one, NvmlTimeout):
                    raise one
                one.result()
            # Without a session no GPU can answer: the caller opens a new one and repeats the whole check.
            except (SessionLost, DriverNotLoaded):
                raise
            except NvmlError as error:
                failures[worker] = error
        return failures

    def unanswered(self) -> tuple[str, ...]:
        """The workers with an abandoned call that has not returned yet."""
        return tuple(worker for worker, one in self._slow.items() if not one.has_ended)

    def _start(self, worker: str, job: Job, ended: SimpleQueue[str]) -> Pending[None] | NvmlTimeout:
        """Start a job. When it ends, its worker is put into ``ended``."""

        def reporting_its_end(watch: Watch) -> None:
            try:
                job(watch)
            finally:
                ended.put(worker)

        # The abandoned call counts as long or patient in the guard, so the guard would not refuse a job yet.
        slow = self._slow.pop(worker, None)
        if slow is not None and not slow.has_ended:
            self._slow[worker] = slow
            return slow.give_up()
        try:
            return self._guard.start(worker, reporting_its_end)
        except NvmlTimeout as overdue:
            return overdue

    def _wait_for_first(
        self, started: dict[str, Pending[None] | NvmlTimeout], ended: SimpleQueue[str]
    ) -> None:
        """Wait for the first jobs of a session as long as they end one after the other; abandon the rest.

        Without persistence mode the kernel initialises a GPU at its first handle. That takes seconds, and it
        does one GPU at a time. So the first job gets a long wait. Each later one gets as long as the first
        took, plus the deadline of a call, counted from the end of the job before. GPUs that have answered by
        then are offered now, the others when a later check finds them ready.
        """
        waiting = {worker: one for worker, one in started.items() if isinstance(one, Pending)}
        began, deadline_seconds = time.monotonic(), self._guard.deadline_seconds
        wait_seconds, is_first = deadline_seconds * LONG_FACTOR, True
        while waiting:
            try:
                del waiting[ended.get(timeout=wait_seconds)]
                if is_first:
                    wait_seconds, is_first = deadline_seconds + time.monotonic() - began, False
            except Empty:
                # A job that waits in the kernel behind others has a call that is younger. Wait on while any
                # is.
                if all(one.call_seconds() >= wait_seconds for one in waiting.values()):
                    break
        for worker, pending in waiting.items():
            self._slow[worker] = pending
            started[worker] = pending.give_up()


def _timeout(worker: _Worker, deadline_seconds: float) -> NvmlTimeout:
    call = worker.call
    allowed = worker.allowed_seconds(deadline_seconds)
    return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), worker.key, allowed)
