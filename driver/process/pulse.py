"""Knows what work the loops of a process are doing, so that a loop that hangs is noticed.

A loop that waits for something to happen is healthy, however long it waits. A loop that works hangs if it
takes longer than any such work can. Calls to NVML, to the API server and to programs have deadlines of their
own, so what still hangs after that is the process itself, which a restart repairs.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

AtWork = Callable[[], AbstractContextManager[None]]
"""The context in which a loop does its work: ``with at_work(): ...``."""

HUNG_SECONDS = 900.0
"""No work takes so long. The longest is the first check of sixteen GPUs that all hang, 30 s each."""


class Pulse:
    """The work that is being done in one process. Thread-safe."""

    def __init__(
        self, hung_seconds: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Work that takes longer than ``hung_seconds`` counts as hung."""
        self._hung_seconds = hung_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[str, float]] = {}

    @contextmanager
    def work(self, name: str) -> Iterator[None]:
        """Count the block as work of that name."""
        # By number and not by name, since the same work may run in several threads. next() of a counter is
        # atomic.
        number, since = next(self._numbers), self._clock()
        with self._lock:
            self._under_way[number] = name, since
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[number]

    def hung(self) -> str:
        """The work that hangs, and for how long it has been going on; empty if none does."""
        now = self._clock()
        with self._lock:
            late = [
                f"{name} has been running for {now - since:.0f} s"
                for name, since in self._under_way.values()
                if now - since > self._hung_seconds
            ]
        return "; ".join(late)
