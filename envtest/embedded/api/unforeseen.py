"""Keeps unexpected errors of the embedded cluster itself, and logs them with their tracebacks.

Parts of the cluster go on after a fault of their own, as those of Kubernetes do. Each fault is noted here,
for the whole process, and a test fails when one was noted while it ran.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from dataclasses import dataclass

_MOST_KEPT = 100

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_noted: deque[Unforeseen] = deque(maxlen=_MOST_KEPT)


@dataclass(frozen=True, slots=True)
class Unforeseen:
    """One unexpected exception, with the work during which it was raised."""

    doing: str
    error: Exception

    def __str__(self) -> str:
        """What was being done, with the traceback."""
        return f"{self.doing}:\n{''.join(traceback.format_exception(self.error))}"


def note(doing: str, error: Exception) -> None:
    """Log an exception, and keep it for ``take``; of more than a hundred the last are kept."""
    _log.error("fault of the embedded cluster: %s", doing, exc_info=error)
    with _lock:
        _noted.append(Unforeseen(doing, error))


def take() -> list[Unforeseen]:
    """All that was noted in this process since the last call."""
    with _lock:
        found = list(_noted)
        _noted.clear()
    return found
