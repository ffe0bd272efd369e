"""Waits for a state by polling, and says what is missing when it does not come."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = float(os.environ.get("WAIT_SECONDS", "90"))
"""Far longer than anything takes on a busy machine: it is reached only when something has gone wrong."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.05


def eventually(
    what: str,
    look: Callable[[], T],
    is_so: Callable[[T], object] = bool,
    *,
    seconds: float = WAIT_SECONDS,
    context: Callable[[], object] | None = None,
) -> T:
    """Call ``look`` until ``is_so`` holds for what it returns, and return that.

    ``what`` names the awaited state in the error, and ``context`` gives more text for it. An exception of
    ``look`` ends the wait.

    Raises:
        AssertionError: the state did not come in time; the message has the last result of ``look``.
    """
    deadline = time.monotonic() + seconds
    pause_seconds = _FIRST_PAUSE_SECONDS
    while not is_so(seen := look()):
        if time.monotonic() > deadline:
            more = "" if context is None else f"\n{context()}"
            raise AssertionError(f"not within {seconds:g} s: {what}; seen last: {seen!r}{more}")
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
    return seen
