"""Keeps the lines that a container printed, for readers that follow them while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without its end, and when it was printed."""

    time: datetime
    text: str


class ContainerLog:
    """The lines of one container. Thread-safe; ``changed`` is notified after each change.

    Of more than 10,000 lines the later ones are dropped.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._lines: list[LogLine] = []
        self._ended = False

    @property
    def lines(self) -> Sequence[LogLine]:
        """All lines so far."""
        with self._changed:
            return tuple(self._lines)

    def print(self, text: str) -> None:
        """Add the lines of a text."""
        moment = datetime.now(UTC)
        with self._changed:
            room = _MOST_LINES - len(self._lines)
            self._lines += [LogLine(moment, line) for line in text.splitlines()[:room]]
            self._changed.notify_all()

    def end(self) -> None:
        """The container has ended."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Have all that wait ask again whether they are gone."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, seen: int, gone: Callable[[], bool]) -> tuple[Sequence[LogLine], bool]:
        """The lines after the first ``seen``, once there are any; and whether more may come.

        Returns at once, too, when the container has ended, or when ``gone`` after a notification.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._lines) > seen or self._ended or gone())
            return tuple(self._lines[seen:]), not (self._ended or gone())
