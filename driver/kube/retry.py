"""Repeats a call of the Kubernetes API while its failure can pass, until a deadline or a stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from driver.errors import ApiError
from driver.kube.backoff import Backoff

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

T = TypeVar("T")


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
    ``on_failure`` hears each error and the seconds until the next try.
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
