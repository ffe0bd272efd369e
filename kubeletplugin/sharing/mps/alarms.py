"""Calls back when a process has ended or a time has come, all in one thread that sleeps until then."""

from __future__ import annotations

import heapq
import itertools
import os
import queue
import selectors
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.process.pulse import AtWork

    Call = Callable[[], None]


class Alarms:
    """Waits for processes and times. Callbacks must be short, since all the others wait meanwhile."""

    def __init__(self, at_work: AtWork = nullcontext) -> None:
        """Run each callback in ``at_work``."""
        self._at_work = at_work
        # A write to this eventfd(2) ends the wait in select.
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._new: queue.SimpleQueue[tuple[int | None, float, Call]] = queue.SimpleQueue()
        self._closed = False

    def when_dead(self, pidfd: int, call: Call) -> None:
        """Call when the process of this descriptor has ended; the descriptor may be closed before."""
        # A pidfd becomes readable when its process ends. The copy lives until then.
        self._add(os.dup(pidfd), 0.0, call)

    def after(self, seconds: float, call: Call) -> None:
        """Call after this time."""
        self._add(None, time.monotonic() + seconds, call)

    def run(self) -> None:
        """Wait and call until closed; runs in a thread of its own."""
        # The number keeps the order of timers with the same time, since functions cannot be compared.
        timers: list[tuple[float, int, Call]] = []
        numbers = itertools.count()
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closed:
                left = max(0.0, timers[0][0] - time.monotonic()) if timers else None
                for key, _ in selector.select(left):
                    if key.data is not None:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        with self._at_work():
                            key.data()
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
                while not self._new.empty():
                    pidfd, moment, call = self._new.get()
                    if pidfd is None:
                        heapq.heappush(timers, (moment, next(numbers), call))
                    else:
                        selector.register(pidfd, selectors.EVENT_READ, call)
                while timers and timers[0][0] <= time.monotonic():
                    with self._at_work():
                        heapq.heappop(timers)[2]()
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    os.close(key.fd)

    def close(self) -> None:
        """Make ``run`` return; outstanding callbacks are dropped."""
        self._closed = True
        os.eventfd_write(self._wake, 1)

    def _add(self, pidfd: int | None, moment: float, call: Call) -> None:
        # Only the thread of run touches the selector and the timers.
        self._new.put((pidfd, moment, call))
        os.eventfd_write(self._wake, 1)
