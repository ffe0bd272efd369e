"""Reads values on request in a thread of its own, at most once a second, so that no caller waits long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from driver.errors import DriverError
from driver.process.log import get_logger

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
"""How long a caller waits for a reading. Prometheus gives up after ten seconds by default."""

FRESH_SECONDS = 1.0
"""A reading that is not older is good for all callers, so there is at most one a second."""

_log = get_logger("look")


class FreshReading(Generic[T]):
    """The last reading of something. It is read only on request, by the thread in ``run``. Thread-safe."""

    def __init__(
        self,
        what: str,
        read: Callable[[], T],
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``read`` may take long, and may raise DriverError. ``what`` names what is read, for the log."""
        self._what = what
        self._read = read
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted = False
        self._reading = False
        self._stopped = False
        self._found: T | None = None
        self._ended_at: float | None = None
        self._failure = ""

    def now(self) -> T | None:
        """What was read within the last second, or is read now; None if that fails or takes too long."""
        with self._changed:
            asked_at = self._clock()

            def is_fresh() -> bool:
                return self._ended_at is not None and self._ended_at >= asked_at - FRESH_SECONDS

            if not is_fresh():
                # A reading that is under way ends after this request, which makes it fresh enough.
                self._wanted = not self._reading
                self._changed.notify_all()
                self._changed.wait_for(lambda: is_fresh() or self._stopped, self._patience_seconds)
            # A failed reading is fresh as well, and has found None.
            return self._found if is_fresh() else None

    def run(self) -> None:
        """Read on request, until ``stop``."""
        while self._is_asked():
            found: T | None
            try:
                found, failure = self._read(), ""
            except DriverError as error:
                found, failure = None, str(error)
            # Once for each new failure: Prometheus asks every few seconds.
            if failure and failure != self._failure:
                _log.warning("not known", what=self._what, error=failure)
            self._failure = failure
            with self._changed:
                self._found, self._ended_at, self._reading = found, self._clock(), False
                self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return once the current reading has ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _is_asked(self) -> bool:
        with self._changed:
            # Reads only when somebody asks: while nobody fetches metrics, nothing is read.
            self._changed.wait_for(lambda: self._wanted or self._stopped)
            self._wanted, self._reading = False, True
            return not self._stopped
