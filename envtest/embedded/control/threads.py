"""The threads of one part of the cluster: starts them, and ends them in the opposite order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from envtest.embedded.api import unforeseen

STOP_SECONDS = 10.0
"""How long ``stop`` waits for all threads together."""

LONGEST_DELAY_SECONDS = 10.0
"""The longest wait of ``repeat`` after failures, unless its own interval is longer."""

_log = logging.getLogger(__name__)


class Threads:
    """Starts threads that run until ``stop``. An unexpected exception in one is noted."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []
        self._deadline = 0.0

    def spawn(self, name: str, run: Callable[[], object], stop: Callable[[], object]) -> None:
        """Call ``run`` in a thread of that name; ``stop`` makes it return."""

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001 - nobody catches what a thread raises
                unforeseen.note(name, error)

        # Daemons, so that a thread that does not end in time cannot keep the process from ending.
        thread = threading.Thread(target=guarded, name=name, daemon=True)
        with self._lock:
            # A thread that starts another one may come too late.
            if not self._stopped.is_set():
                thread.start()
                self.on_stop(lambda: self._end(thread, stop))

    def repeat(self, name: str, every_seconds: float, work: Callable[[], object]) -> None:
        """Call ``work`` now and every ``every_seconds``; after failures, which are noted, less often."""

        def run() -> None:
            delay = 0.0
            while not self._stopped.wait(delay):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - the next call may succeed
                    unforeseen.note(name, error)
                    delay = max(every_seconds, min(2 * delay, LONGEST_DELAY_SECONDS))
                else:
                    delay = every_seconds

        self.spawn(name, run, self._stopped.set)

    def pool(self, name: str, workers: int) -> ThreadPoolExecutor:
        """A thread pool; work that has not begun by ``stop`` is cancelled."""
        executor = ThreadPoolExecutor(max_workers=workers, thread_name_prefix=name)
        self.on_stop(lambda: executor.shutdown(wait=False, cancel_futures=True))
        return executor

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Have ``stop`` call this, before everything that was added earlier."""
        self._stops.append(stop)

    def stop(self) -> None:
        """End everything, each part once, whatever another part raises."""
        with self._lock:
            self._stopped.set()
        self._deadline = time.monotonic() + STOP_SECONDS
        while self._stops:
            try:
                self._stops.pop()()
            except Exception as error:  # noqa: BLE001 - the other parts must end whatever this one does
                unforeseen.note("the end of a part", error)

    def _end(self, thread: threading.Thread, stop: Callable[[], object]) -> None:
        stop()
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if thread.is_alive():
            _log.warning("the thread %s did not end in time", thread.name)
