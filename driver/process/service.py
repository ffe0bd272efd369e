"""Owns every long-lived thread of a process: starts them, waits for the end, stops them in reverse.

A process wires its parts with ``spawn``, ``repeat``, ``pool`` and ``on_stop`` and then calls
``run``, which returns after SIGTERM or SIGINT and raises when a thread failed.
"""

from __future__ import annotations

import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from driver.errors import DriverError
from driver.process.log import get_logger
from driver.process.pulse import HUNG_SECONDS, Pulse

STOP_SECONDS = 10.0
"""How long ``stop`` waits for all threads together; Kubernetes kills the process after 30 s."""

FIRST_BACK_OFF_SECONDS = 1.0
LAST_BACK_OFF_SECONDS = 60.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FAILED = b"\0"  # is no signal's number
_log = get_logger(__name__)


class Service:
    """The threads of one process and the order in which they end.

    ``stop_event`` is set first when the process ends: loops wait on it instead of sleeping. ``pulse`` knows
    what the loops are at.
    """

    def __init__(self, hung_seconds: float = HUNG_SECONDS) -> None:
        """Start nothing yet; work that takes longer than ``hung_seconds`` hangs."""
        self.stop_event = threading.Event()
        self.pulse = Pulse(hung_seconds)
        self._failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._waker: socket.socket | None = None
        self._signals: socket.socket | None = None
        self._caught = ExitStack()
        self._stops: list[tuple[str, Callable[[], object]]] = []
        self._lock = threading.Lock()
        self._deadline = 0.0

    def spawn(self, name: str, fn: Callable[[], object], stop: Callable[[], object] | None = None) -> None:
        """Run ``fn`` in a thread of that name until it returns; an exception ends the whole service.

        ``stop`` makes ``fn`` return; a function that watches ``stop_event`` needs none.
        """
        thread = threading.Thread(target=self._guarded, args=(name, fn), name=name, daemon=True)
        self.on_stop(name, lambda: self._end(thread, stop))
        thread.start()

    def repeat(
        self,
        name: str,
        every_seconds: float,
        fn: Callable[[], object],
        now: threading.Event | None = None,
    ) -> None:
        """Call ``fn`` now and every so many seconds, in a thread of that name; at once when ``now`` is set.

        A DriverError is logged and tried again with a doubling delay; anything else is a fault of
        ours and ends the service.
        """
        wake = now or threading.Event()
        self.spawn(name, lambda: self._repeat(name, every_seconds, fn, wake), wake.set)

    def pool(self, name: str, workers: int) -> ThreadPoolExecutor:
        """A thread pool that ends with the service: work that has not begun by then is cancelled."""
        executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)
        self.on_stop(name, lambda: executor.shutdown(wait=False, cancel_futures=True))
        return executor

    def on_stop(self, name: str, stop: Callable[[], object]) -> None:
        """Call ``stop`` when the service ends, before everything that was added earlier."""
        with self._lock:
            self._stops.append((name, stop))

    def catch_signals(self) -> None:
        """Keep signals for ``run`` from now on, which otherwise begins to; for the main thread.

        Until ``run`` they would end the process at once, its sockets left behind.
        """
        if self._signals is None:
            self._signals = self._caught.enter_context(self._signals_as_bytes())

    def run(self) -> None:
        """Block until a signal or the first failing thread, then stop everything.

        Must be called in the main thread. Raises what the thread raised.
        """
        self.catch_signals()
        with self._caught:
            reason = self._reason()
            if isinstance(reason, signal.Signals):
                _log.info("stopping", signal=reason.name)
            self.stop()
        self._signals = None
        if isinstance(reason, BaseException):
            raise reason

    def stop(self) -> None:
        """Set ``stop_event`` and end everything in reverse order; what has ended is not ended again.

        An error of one part is logged and the others are still stopped.
        """
        self.stop_event.set()
        self._deadline = time.monotonic() + STOP_SECONDS
        while True:
            with self._lock:
                if not self._stops:
                    return
                name, stop = self._stops.pop()
            try:
                stop()
            except Exception:  # noqa: BLE001 - the other parts must end whatever this one does
                _log.exception("part did not stop cleanly", part=name)

    def _guarded(self, name: str, fn: Callable[[], object]) -> None:
        try:
            fn()
        except BaseException as error:  # noqa: BLE001 - run() raises it in the main thread
            _log.error("thread failed", thread=name, exc_info=error)
            self._failures.put(error)
            if self._waker is not None:
                self._waker.send(_FAILED)

    def _end(self, thread: threading.Thread, stop: Callable[[], object] | None) -> None:
        if stop is not None and thread.is_alive():
            stop()
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if thread.is_alive():
            _log.warning("thread did not end in time", thread=thread.name)

    def _repeat(
        self, name: str, every_seconds: float, fn: Callable[[], object], wake: threading.Event
    ) -> None:
        failures = 0
        while not self.stop_event.is_set():
            try:
                with self.pulse.work(name):
                    fn()
                failures = 0
            except DriverError as error:
                failures += 1
                _log.warning("service loop failed", loop=name, failures=failures, error=str(error))
            wake.wait(delay_seconds(every_seconds, failures))
            wake.clear()  # before the next call, which sees what has happened so far

    def _reason(self) -> BaseException | signal.Signals:
        """Wait for a signal or the first thread that failed, perhaps before this was called."""
        while self._failures.empty() and self._signals is not None:
            number = self._signals.recv(1)[0]
            if number in _SIGNALS:
                return signal.Signals(number)
        return self._failures.get()

    @contextmanager
    def _signals_as_bytes(self) -> Iterator[socket.socket]:
        """Numbers of signals arrive as bytes at the socket.

        The kernel may hand a signal to any thread, or to the main one just before it begins to wait;
        a lock would miss both, and the process would never end. A byte that was written is not missed.
        """
        reader, writer = socket.socketpair()
        with reader, writer:
            writer.settimeout(0)  # set_wakeup_fd asks for a socket that never blocks
            # First the socket: a signal between the two would find a handler that does nothing with it.
            wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            before = {number: signal.signal(number, _leave_to_the_socket) for number in _SIGNALS}
            self._waker = writer
            try:
                yield reader
            finally:
                self._waker = None
                signal.set_wakeup_fd(wakeup_before)
                for number, handler in before.items():
                    signal.signal(number, handler)


def _leave_to_the_socket(_number: int, _frame: object) -> None:
    """A handler has to be there, so that the signal is written to the socket and does nothing else."""


def delay_seconds(every_seconds: float, failures: int) -> float:
    """How long a loop waits after so many failures in a row; without any, its own interval.

    The first retry comes after a second, or the interval if that is shorter; the delay doubles
    up to a minute, or the interval if that is longer.
    """
    if failures == 0:
        return every_seconds
    first = min(FIRST_BACK_OFF_SECONDS, every_seconds)
    last = max(LAST_BACK_OFF_SECONDS, every_seconds)
    return float(min(first * 2 ** min(failures - 1, 30), last))
