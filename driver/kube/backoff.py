"""How long to wait before the next try: exponential, with jitter, and on top of what the server asks for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from driver.errors import ApiError, DriverError
from driver.kube.errors import TooManyRequests, Unreachable

# A server, or a proxy before it, can ask for any time. A header must not make the driver wait for a day.
_LONGEST_ASKED_SECONDS = 60.0

T = TypeVar("T")


class Backoff:
    """Waiting times that double from ``first_seconds`` to ``most_seconds``, each less up to half at random.

    Not thread-safe: each loop has its own.
    """

    def __init__(
        self,
        first_seconds: float = 0.1,
        most_seconds: float = 30.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._jitter = jitter
        self._next_seconds = first_seconds

    def reset(self) -> None:
        """Start over, after a try that succeeded."""
        self._next_seconds = self._first_seconds

    def next_seconds(self, error: DriverError | None = None) -> float:
        """The seconds to wait now, in addition to those that the server asks for in ``error``."""
        # The jitter keeps the nodes of a cluster from coming back at the same moment after an outage of the
        # API server. An overloaded one asks all of them to wait for the same second, so that is not enough.
        seconds = self._next_seconds * (1 - self._jitter() / 2)
        self._next_seconds = min(self._next_seconds * 2, self._most_seconds)
        return asked_seconds(error) + seconds


def asked_seconds(error: Any) -> float:
    """The seconds that the server asks to wait in this error, 60 at most; 0 if it asks for none."""
    if isinstance(error, TooManyRequests | Unreachable):
        return min(error.retry_after_seconds or 0.0, _LONGEST_ASKED_SECONDS)
    return 0.0


def retry_until(
    call: Callable[[], T],
    *,
    deadline: float | None,
    stop: threading.Event,
    backoff: Backoff | None = None,
    on_failure: Callable[[ApiError, float], None] = lambda _error, _wait_seconds: None,
) -> T:
    """The answer of ``call``, which is repeated while it raises a retryable ApiError.

    ``deadline`` is a time of ``time.monotonic()``, or None. The last error is raised if the next try would
    begin after the deadline, if ``stop`` is set, or at once if it is permanent. ``on_failure`` is called with
    each error and the seconds until the next try.
    """
    backoff = backoff or Backoff()
    while True:
        try:
            return call()
        except ApiError as error:
            wait_seconds = backoff.next_seconds(error)
            too_late = deadline is not None and time.monotonic() + wait_seconds > deadline
            if not error.retryable or too_late:
                raise
            on_failure(error, wait_seconds)
            # Waits on the event, so that the end of the process does not wait for the next try.
            if stop.wait(wait_seconds):
                raise
