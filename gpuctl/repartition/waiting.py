"""Waits until a change has happened: reads the cluster again and again, and says each thing once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from driver.errors import ApiError

LOOK_SECONDS = 2.0
"""How often the cluster is read while waiting."""


def sleep(seconds: float) -> None:
    """Wait so many seconds."""
    threading.Event().wait(seconds)


class SayOnce:
    """Says each line once, however often it is given."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, line: str) -> None:
        """Say a line that was not said before."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def wait_for_none(
    left: Callable[[], Iterable[str]],
    deadline: float,
    pause: Callable[[float], None] = sleep,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """Call ``left`` until it returns nothing or ``deadline`` (time.monotonic) is over; what it returned last.

    A failure of the API server that may pass counts as something left. Raises ApiError for any other.
    """
    while True:
        try:
            found = tuple(left())
        except ApiError as error:
            if not error.retryable:
                raise
            found = (error.what,)
        for one in found:
            say(f"waiting: {one}")
        rest = deadline - time.monotonic()
        if not found or rest <= 0:
            return found
        pause(min(LOOK_SECONDS, rest))
