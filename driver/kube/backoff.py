"""Says how long to wait before the next try: exponential, with jitter, never less than the server asks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from driver.kube.errors import TooManyRequests, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.errors import DriverError


LONGEST_ASKED_SECONDS = 60.0
"""A server, or a proxy before it, can ask for any time; nobody waits a day for a number in a header."""


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
        return min(error.retry_after_seconds or 0.0, LONGEST_ASKED_SECONDS)
    return 0.0
