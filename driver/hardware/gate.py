"""Keeps work on NVML apart from the times without a session: many threads may work, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from driver.errors import NvmlError


class LetGo(NvmlError):
    """NVML is not asked while a GPU changes its kernel driver; it says nothing about any GPU."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "nothing: it is tried again")


class Gate:
    """Several threads may work inside, until one of them wants all of the others out.

    A thread inside must not enter again, nor close it.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed = 0
        self._inside = 0

    @contextmanager
    def entered(self, wait_seconds: float) -> Iterator[None]:
        """Work in the block; raises LetGo while the gate stays closed for so long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed == 0, wait_seconds):
                raise LetGo("NVML is let go of while a GPU changes its kernel driver")
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self, wait_seconds: float) -> Iterator[None]:
        """Keep all threads out during the block; raises LetGo when one does not leave in time.

        Others may have it closed at the same time.
        """
        with self._changed:
            self._closed += 1
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self._inside == 0, wait_seconds):
                    raise LetGo("NVML cannot be let go of: a call is still under way")
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
