"""Waits for what arrives later and tells nobody, and says what is missing when it does not arrive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WAIT_SECONDS = 90.0
"""A limit for what has gone wrong, far beyond what anything takes on a busy machine."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.05


def eventually(
    what: str,
    look: Callable[[], T],
    is_so: Callable[[T], object] = bool,
    *,
    seconds: float = WAIT_SECONDS,
    context: Callable[[], object] | None = None,
) -> T:
    """Look again and again until what is seen is as wanted, and return it.

    ``what`` names that. A look that raises ends the wait. ``context`` gives more to tell when it fails.

    Raises:
        AssertionError: it did not come to that in time; the message has what was seen last.
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
