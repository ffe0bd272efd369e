"""Asks the controllers of this node to close NVML, and waits until each of them has answered.

There may be two of them during a rolling update. The answers are not relied on: before a GPU is taken from
its kernel driver, the plugin itself checks which processes have it open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from driver.errors import ClaimBlocked

ANSWER_SECONDS = 20.0
"""How long to wait for an answer, which comes after the controller's running NVML calls have ended."""


class NotLetGo(ClaimBlocked):
    """A controller of this node still has NVML open."""


class Controllers:
    """The controllers that are connected now, by name. Safe to use from any thread."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        """``ask(number)`` sends the request with this number to all controllers; 0 ends it."""
        self._ask = ask
        self._changed = Condition()
        self._listening: Counter[str] = Counter()
        self._answers: dict[str, tuple[int, str]] = {}
        self._last = 0
        self._asked: set[int] = set()

    def joined(self, name: str) -> None:
        """A controller has connected."""
        with self._changed:
            self._listening[name] += 1
            self._changed.notify_all()

    def left(self, name: str) -> None:
        """A controller has disconnected; it may open NVML from now on."""
        with self._changed:
            self._listening[name] -= 1
            if self._listening[name] <= 0:
                del self._listening[name]
                self._answers.pop(name, None)
            self._changed.notify_all()

    def answered(self, name: str, number: int, failure: str) -> None:
        """A controller has closed NVML for the request with this number, or could not, with the reason."""
        with self._changed:
            if name in self._listening:
                self._answers[name] = number, failure
                self._changed.notify_all()

    @contextmanager
    def letting_go(self, wait_seconds: float = ANSWER_SECONDS) -> Iterator[None]:
        """Keep NVML closed in all controllers during the block.

        Raises NotLetGo if one cannot close it or does not answer in time.
        """
        with self._changed:
            self._last += 1
            number = self._last
            self._asked.add(number)
            self._ask(self._last)
        try:
            self._wait(number, wait_seconds)
            yield
        finally:
            with self._changed:
                # Blocks may overlap: NVML stays closed until the last of them ends.
                self._asked.discard(number)
                self._ask(max(self._asked, default=0))

    def _wait(self, number: int, wait_seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._failure(number) or not self._silent(number), wait_seconds)
            failure, silent = self._failure(number), self._silent(number)
        if failure:
            raise NotLetGo(f"the controller of this node cannot release the GPU: {failure}", _AGAIN)
        if silent:
            raise NotLetGo(
                f"the controller of this node did not release the GPU within {wait_seconds:.0f} s",
                "see its log, and delete its pod if it hangs: a new one takes its place",
            )

    def _failure(self, number: int) -> str:
        """Why a controller cannot close NVML; empty if no failure is known."""
        return next((why for answered, why in self._answers.values() if answered >= number and why), "")

    def _silent(self, number: int) -> tuple[str, ...]:
        """The controllers that have not answered yet."""
        return tuple(name for name in self._listening if self._answers.get(name, (0, ""))[0] < number)


_AGAIN = "it is tried again"
