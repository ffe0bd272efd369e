"""Owns every long-lived thread of a process: starts them, waits for the end, stops them in reverse order.

A process connects its parts with ``spawn``, ``repeat``, ``pool`` and ``on_stop``, and then calls ``run``,
which returns after SIGTERM or SIGINT and raises if a thread failed.
"""

from __future__ import annotations

import queue
import random
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
"""How long ``stop`` waits for all threads together. Kubernetes kills the process after 30 s."""

FIRST_BACK_OFF_SECONDS = 1.0
LAST_BACK_OFF_SECONDS = 60.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A byte that is not the number of a signal: no signal has the number 0.
_FAILED = b"\0"
_log = get_logger(__name__)


class Service:
    """The threads of one process and the order in which they end.

    ``stop_event`` is set first when the process ends: loops wait for it instead of sleeping. ``pulse`` knows
    what the loops are doing.
    """

    def __init__(self, hung_seconds: float = HUNG_SECONDS) -> None:
        """Start nothing yet. Work that takes longer than ``hung_seconds`` counts as hung."""
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
        # Daemons, so that a thread that does not end in time cannot keep the process from ending.
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
        """Call ``fn`` now, every ``every_seconds``, and when ``now`` is set, in a thread of that name.

        After a DriverError, which is logged, it is called again. The delay doubles with each failure, and is
        shortened by up to half at random. Any other exception is a fault of this driver and ends the service.
        """
        wake = now or threading.Event()
        self.spawn(name, lambda: self._repeat(name, every_seconds, fn, wake), wake.set)

    def pool(self, name: str, workers: int) -> ThreadPoolExecutor:
        """A thread pool that ends with the service. Work that has not begun by then is cancelled."""
        executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)
        self.on_stop(name, lambda: executor.shutdown(wait=False, cancel_futures=True))
        return executor

    def on_stop(self, name: str, stop: Callable[[], object]) -> None:
        """Call ``stop`` when the service ends, before everything that was added earlier."""
        with self._lock:
            self._stops.append((name, stop))

    def catch_signals(self) -> None:
        """Catch signals from now on and keep them for ``run``. To be called in the main thread.

        Without this they are caught only in ``run``, and before it they end the process at once and leave its
        sockets behind.
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
        """Set ``stop_event`` and stop everything in reverse order, each part once.

        If a part raises, that is logged and the others are stopped all the same.
        """
        self.stop_event.set()
        self._deadline = time.monotonic() + STOP_SECONDS
        while True:
            with self._lock:
                if not self._stops:
                    return
                # One at a time, so that no part is stopped twice.
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
            # run() waits for a byte, so a failure has to write one, too.
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
            # Some loops read from the API server: after it was away, not all nodes come in the same moment.
            part = 1 - random.random() / 2 if failures else 1  # noqa: S311 # spreads load, no secret
            wake.wait(delay_seconds(every_seconds, failures) * part)
            # Before the next call: what happens during that call sets it again.
            wake.clear()

    def _reason(self) -> BaseException | signal.Signals:
        """Wait for a signal, or for the first thread that fails or has failed already."""
        while self._failures.empty() and self._signals is not None:
            # A blocking recv in the main thread. The kernel may deliver a signal to any thread, or just
            # before the wait begins. A lock or an event could miss it then, but the byte stays in the socket.
            number = self._signals.recv(1)[0]
            if number in _SIGNALS:
                return signal.Signals(number)
        return self._failures.get()

    @contextmanager
    def _signals_as_bytes(self) -> Iterator[socket.socket]:
        """A socket at which the numbers of signals arrive as bytes."""
        reader, writer = socket.socketpair()
        with reader, writer:
            # set_wakeup_fd refuses a descriptor that may block.
            writer.settimeout(0)
            # The socket first: a signal that came between the two lines would otherwise be lost.
            # Python's own C handler writes the number of each signal, in whichever thread it arrives.
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
    """A handler that does nothing: Python writes to the socket only for signals that have a handler."""


def delay_seconds(every_seconds: float, failures: int) -> float:
    """How long a loop waits after this many failures in a row; without failures, its own interval.

    The first retry comes after a second, or after the interval if that is shorter. The delay doubles up to a
    minute, or up to the interval if that is longer.
    """
    if failures == 0:
        return every_seconds
    first = min(FIRST_BACK_OFF_SECONDS, every_seconds)
    last = max(LAST_BACK_OFF_SECONDS, every_seconds)
    # The exponent is bounded, since a loop may fail for weeks.
    return float(min(first * 2 ** min(failures - 1, 30), last))
