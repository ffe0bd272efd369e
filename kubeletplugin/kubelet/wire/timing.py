"""Counts how long the steps of a claim took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from driver.process.metrics.registry import Phase


def _nobody(_seconds: float) -> None:
    """Nobody counts."""


def _nobody_counts(_phase: Phase, _seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Callbacks that take seconds: of phases, of writes of the journal, and of those of a claim's files."""

    phase: Callable[[Phase, float], None] = _nobody_counts
    journal: Callable[[float], None] = _nobody
    files: Callable[[float], None] = _nobody

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Count the block as a phase, also where it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phase(phase, time.perf_counter() - started)

    def waited(self, seconds: float) -> None:
        """Count a wait for locks."""
        self.phase("locks", seconds)


NO_TIMING = Timing()
