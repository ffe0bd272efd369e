"""Calls back when a process has died or a time has come, all in one thread that sleeps until then."""

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
    """What is waited for; calls must be short, since all the others wait meanwhile."""

    def __init__(self, at_work: AtWork = nullcontext) -> None:
        """Make each call in ``at_work``."""
        self._at_work = at_work
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._new: queue.SimpleQueue[tuple[int | None, float, Call]] = queue.SimpleQueue()
        self._closed = False

    def when_dead(self, pidfd: int, call: Call) -> None:
        """Call when the process of this descriptor has ended; the descriptor may be closed meanwhile."""
        self._add(os.dup(pidfd), 0.0, call)

    def after(self, seconds: float, call: Call) -> None:
        """Call once that time has passed."""
        self._add(None, time.monotonic() + seconds, call)

    def run(self) -> None:
        """Wait and call until closed; for a thread of its own."""
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
        """Have ``run`` return; what was waited for is forgotten."""
        self._closed = True
        os.eventfd_write(self._wake, 1)

    def _add(self, pidfd: int | None, moment: float, call: Call) -> None:
        self._new.put((pidfd, moment, call))
        os.eventfd_write(self._wake, 1)
