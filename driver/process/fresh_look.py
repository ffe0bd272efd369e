"""Reads values in a thread of its own on request, at most once a second, so that no caller waits for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from driver.errors import DriverError
from driver.process.log import get_logger

T = TypeVar("T")

PATIENCE_SECONDS = 2.0
"""How long a caller waits for a reading; Prometheus gives up after ten seconds by default."""

FRESH_SECONDS = 1.0
"""A reading that is not older serves all callers, so there is at most one a second."""

_log = get_logger("look")


class FreshLook(Generic[T]):
    """Reads while ``run`` runs, and only on request. Several threads may ask at once."""

    def __init__(
        self,
        what: str,
        look: Callable[[], T],
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``look`` reads: it may take long, and raise DriverError. ``what`` it reads is for the log."""
        self._what = what
        self._look = look
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted = False
        self._looking = False
        self._stopped = False
        self._found: T | None = None
        self._ended_at: float | None = None
        self._failure = ""

    def now(self) -> T | None:
        """What was seen within a second, or is seen now; None where nothing is within the patience."""
        with self._changed:
            asked_at = self._clock()

            def is_fresh() -> bool:
                return self._ended_at is not None and self._ended_at >= asked_at - FRESH_SECONDS

            if not is_fresh():
                self._wanted = not self._looking
                self._changed.notify_all()
                self._changed.wait_for(lambda: is_fresh() or self._stopped, self._patience_seconds)
            return self._found if is_fresh() else None

    def run(self) -> None:
        """Read on request, until ``stop``."""
        while self._is_asked():
            found: T | None
            try:
                found, failure = self._look(), ""
            except DriverError as error:
                found, failure = None, str(error)
            if failure and failure != self._failure:
                _log.warning("not known", what=self._what, error=failure)
            self._failure = failure
            with self._changed:
                self._found, self._ended_at, self._looking = found, self._clock(), False
                self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return once the current reading has ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _is_asked(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._stopped)
            self._wanted, self._looking = False, True
            return not self._stopped
