"""Knows what the loops of a process are at, so that one that hangs is noticed.

A loop that waits for something to happen is well however long it waits. One that is at work is late when
it takes longer than any honest work of its kind can: calls into NVML, to the API server and to programs
end after a time of their own, so what then still hangs is the process itself.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

AtWork = Callable[[], AbstractContextManager[None]]
"""What a loop does its work in: ``with at_work(): ...``."""

HUNG_SECONDS = 900.0
"""No work takes so long. The longest is the first check of sixteen GPUs that all hang, 30 s each."""


class Pulse:
    """The work that is under way in one process; safe to use from every thread."""

    def __init__(
        self, hung_seconds: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Work that takes longer than ``hung_seconds`` hangs; nothing is under way yet."""
        self._hung_seconds = hung_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[str, float]] = {}

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Do the block as work of that name."""
        number, since = next(self._numbers), self._clock()
        with self._lock:
            self._under_way[number] = name, since
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[number]

    def hung(self) -> str:
        """Which work hangs, and for how long it has been under way; empty when none does."""
        now = self._clock()
        with self._lock:
            late = [
                f"{name} is at work for {now - since:.0f} s"
                for name, since in self._under_way.values()
                if now - since > self._hung_seconds
            ]
        return "; ".join(late)
