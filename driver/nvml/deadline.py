"""Runs NVML calls under a deadline, so that a call that hangs never blocks its caller.

A call into a wedged kernel driver cannot be interrupted, only abandoned. Each GPU, and the node, has a
worker: one daemon thread that makes its calls in turn. A worker whose call is overdue refuses at once until
that call has returned, so a worker never has more than one hung thread, and recovers by itself.
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
"""The one call that is announced: while it runs, calls of other processes into the GPU wait."""

_C_FUNCTIONS = NODE_CALLS | GPU_CALLS


class _Abandoned(BaseException):
    """Ends a job whose caller no longer waits; no ``except`` of the job may catch it."""


@dataclass(slots=True, eq=False)
class _Run:
    """One job of a worker; ``done`` is locked until it has ended."""

    job: Callable[[Watch], object]
    done: Lock = field(default_factory=Lock)
    result: object = None
    error: BaseException | None = None
    abandoned: bool = False


class Watch:
    """Makes the calls of a job: each one gets the full deadline of its own."""

    __slots__ = ("_run", "_worker")

    def __init__(self, worker: _Worker, run: _Run) -> None:
        self._worker = worker
        self._run = run

    def __call__(self, name: str, call: Callable[[], T], *, patient: bool = False) -> T:
        """Make the call; ``name`` is its method in driver.nvml.api, for the message of a timeout.

        ``patient``: it may take long on a healthy GPU, as the first call of a session does on a GPU without
        persistence mode, which the kernel initialises then.
        """
        if self._run.abandoned:
            raise _Abandoned
        self._worker.begin(name, patient=patient)
        try:
            if name != _TOLD_CALL:
                return call()
            self._worker.tell(begins=True)
            try:
                return call()
            finally:
                self._worker.tell(begins=False)
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
        self.thread = Thread(target=self._work, name=f"nvml {key}", daemon=True)
        self.thread.start()

    def begin(self, call: str, *, patient: bool = False) -> None:
        self.since = time.monotonic()
        self.call = call
        self.patient = patient
        self.busy = True

    def tell(self, *, begins: bool) -> None:
        """Tell the guard's listener that the change of MIG mode begins, or that it is over or overdue."""
        self._guard.listener(self.key, begins)

    def ended(self, call: str) -> None:
        """Tell the guard's counter how long a call took."""
        self._guard.counter(call, time.monotonic() - self.since)

    def overdue_in(self, deadline_seconds: float) -> float:
        """Seconds until the current call is overdue; a full deadline while there is none."""
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
    """A job that was given to a worker."""

    def __init__(self, worker: _Worker, run: _Run, deadline_seconds: float) -> None:
        self._worker = worker
        self._run = run
        self._deadline_seconds = deadline_seconds

    def result(self) -> T:
        """The job's result or its exception; NvmlTimeout once a call of the worker is overdue."""
        while True:
            left = self._worker.overdue_in(self._deadline_seconds)
            if self._run.done.acquire(timeout=max(left, 0.0)):
                break
            if self._worker.overdue_in(self._deadline_seconds) <= 0:
                self._run.abandoned = True
                if self._worker.call == _TOLD_CALL:
                    self._worker.tell(begins=False)
                raise _timeout(self._worker, self._deadline_seconds)
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
        """For how long the worker's current call has not returned; 0 without one."""
        return time.monotonic() - self._worker.since if self._worker.busy else 0.0

    def give_up(self) -> NvmlTimeout:
        """Wait no longer: the job ends with its current call. The timeout to report for that call."""
        self._run.abandoned = True
        call = self._worker.call
        return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), self._worker.key, self._deadline_seconds)


class Guard:
    """The workers of one process. Threads start with the first use of a worker and end with ``close``.

    ``listener`` is called with the worker's key when a change of MIG mode begins, and when it has ended or is
    overdue; from other threads, perhaps twice. ``counter`` is called with the seconds of
    each call that returned.
    """

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self.deadline_seconds = deadline_seconds
        self._workers: dict[str, _Worker] = {}
        self._lock = Lock()
        self._closed = False
        self.listener: Callable[[str, bool], None] = lambda _key, _begins: None
        self.counter: Callable[[str, float], None] = lambda _call, _seconds: None

    def start(self, key: str, job: Callable[[Watch], T]) -> Pending[T]:
        """Give the worker a job; raises NvmlTimeout at once while a call of that worker is overdue."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the guard is closed")
            worker = self._workers.get(key)
            if worker is None:
                worker = self._workers[key] = _Worker(key, self)
            if worker.overdue_in(self.deadline_seconds) <= 0:
                raise _timeout(worker, self.deadline_seconds)
            run = _Run(job)
            run.done.acquire()
            worker.queue.put(run)
        return Pending(worker, run, self.deadline_seconds)

    def run(self, key: str, job: Callable[[Watch], T]) -> T:
        """Have the worker do a job and wait for it; raises what the job raises, or NvmlTimeout."""
        return self.start(key, job).result()

    def side_by_side(self, jobs: Mapping[str, Callable[[Watch], T]]) -> dict[str, T | NvmlCallFailed]:
        """Do jobs in their workers all at once; the result of each, or its error."""
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
        """Let a worker's thread end after the jobs it has; the next job gets another worker.

        A claim may name any address, and each address would keep a thread for ever.
        """
        with self._lock:
            worker = self._workers.pop(key, None)
            if worker is not None:
                worker.queue.put(None)

    def hung(self) -> tuple[str, ...]:
        """The workers whose call is overdue now, sorted."""
        with self._lock:
            workers = list(self._workers.values())
        return tuple(
            sorted(worker.key for worker in workers if worker.overdue_in(self.deadline_seconds) <= 0)
        )

    def close(self) -> None:
        """Let every worker's thread end after the jobs it has; a hung one is left behind as a daemon."""
        with self._lock:
            self._closed = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.queue.put(None)
        for worker in workers:
            worker.thread.join(timeout=max(worker.overdue_in(self.deadline_seconds), 0.0))


class Workers:
    """The jobs of one check after another, each in its worker of the guard. Used by one thread at a time."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._slow: dict[str, Pending[None]] = {}

    def finish(self, jobs: Mapping[str, Job], *, is_first: bool) -> dict[str, NvmlError]:
        """Do the jobs and wait for all of them; errors by worker. ``is_first``: the first check in a session.

        Raises SessionLost and DriverNotLoaded, which concern the whole node.
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
            except (SessionLost, DriverNotLoaded):
                raise
            except NvmlError as error:
                failures[worker] = error
        return failures

    def unanswered(self) -> tuple[str, ...]:
        """The workers with an abandoned call that has not returned."""
        return tuple(worker for worker, one in self._slow.items() if not one.has_ended)

    def _start(self, worker: str, job: Job, ended: SimpleQueue[str]) -> Pending[None] | NvmlTimeout:
        """Begin a job, whose worker is put into ``ended`` when it is over.

        While a call that was given up is under way in its worker, none is begun: it may have much time left.
        """

        def told(watch: Watch) -> None:
            try:
                job(watch)
            finally:
                ended.put(worker)

        slow = self._slow.pop(worker, None)
        if slow is not None and not slow.has_ended:
            self._slow[worker] = slow
            return slow.give_up()
        try:
            return self._guard.start(worker, told)
        except NvmlTimeout as overdue:
            return overdue

    def _wait_for_first(
        self, started: dict[str, Pending[None] | NvmlTimeout], ended: SimpleQueue[str]
    ) -> None:
        """Wait for the first jobs of a session, for as long as one after the other ends; give up the rest.

        The kernel initialises a GPU without persistence mode with its first handle, which takes seconds, one
        GPU at a time. So the first to answer is waited for with patience, and each of the others for as long
        after the one before, and the time of a call. GPUs that have answered by then are offered, the others
        when a later check finds them ready.
        """
        waiting = {worker: one for worker, one in started.items() if isinstance(one, Pending)}
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
        for worker, pending in waiting.items():
            self._slow[worker] = pending
            started[worker] = pending.give_up()


def _timeout(worker: _Worker, deadline_seconds: float) -> NvmlTimeout:
    call = worker.call
    allowed = worker.allowed_seconds(deadline_seconds)
    return NvmlTimeout(_C_FUNCTIONS.get(call, call or "NVML"), worker.key, allowed)
