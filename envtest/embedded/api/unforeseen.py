"""Logs unexpected errors of the embedded cluster itself, with their tracebacks.

Parts of the cluster go on after a fault of their own, as those of Kubernetes do. A test fails when one was
logged while it ran: see ``envtest.pytest_plugin``.
"""

from __future__ import annotations

import logging
import ssl
import traceback
from dataclasses import dataclass

CLIENT_GONE = (ConnectionError, ssl.SSLEOFError)
"""What writing to a client that has left raises, plain and with TLS: no fault of the cluster."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unforeseen:
    """One unexpected exception, with the work during which it was raised."""

    doing: str
    error: BaseException

    def __str__(self) -> str:
        """What was being done, with the traceback."""
        return f"{self.doing}:\n{''.join(traceback.format_exception(self.error))}"


def note(doing: str, error: Exception) -> None:
    """Log an exception."""
    _log.error("fault of the embedded cluster: %s", doing, exc_info=error, extra={"doing": doing})


class Noted(logging.Handler):
    """Keeps what is noted in this process until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Unforeseen] = []
        _log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a fault."""
        if record.exc_info and record.exc_info[1]:
            self._kept.append(Unforeseen(record.__dict__["doing"], record.exc_info[1]))

    def take(self) -> list[Unforeseen]:
        """All that was noted since the last call."""
        self.acquire()  # it is held while a record is kept
        kept, self._kept = self._kept, []
        self.release()
        return kept
