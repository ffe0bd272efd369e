"""How long to wait before the next try: exponential, with jitter, never less than the server asks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from driver.errors import ApiError, DriverError
from driver.kube.errors import TooManyRequests, Unreachable

_LONGEST_ASKED_SECONDS = 60.0
"""A server, or a proxy before it, can ask for any time; a header must not make the driver wait for a day."""

T = TypeVar("T")


class Backoff:
    """Waiting times that double from ``first_seconds`` to ``most_seconds``, each cut by up to half at random.

    The jitter keeps the nodes of a cluster from coming back at the same moment after an outage.
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
        """Start over: the last try went well."""
        self._next_seconds = self._first_seconds

    def next_seconds(self, error: DriverError | None = None) -> float:
        """How long to wait now, in seconds; at least what ``error`` says that the server asks for."""
        seconds = self._next_seconds * (1 - self._jitter() / 2)
        self._next_seconds = min(self._next_seconds * 2, self._most_seconds)
        return max(seconds, asked_seconds(error))


def asked_seconds(error: Any) -> float:
    """The time that the server asked to wait with this error, within bounds; 0 when it asked for none."""
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

    ``deadline`` is a moment of ``time.monotonic()``, None means none: the last error is raised when
    the next try would begin after it, when ``stop`` is set, or at once when it is permanent.
    ``on_failure`` is called with each error and the seconds until the next try.
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
            if stop.wait(wait_seconds):
                raise
