"""Keeps threads out of NVML while its session has to stay closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from driver.errors import NvmlError


class LetGo(NvmlError):
    """NVML cannot be asked while a GPU changes its kernel driver. It says nothing about any GPU."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "nothing to do: it is tried again")


class Gate:
    """Many threads may be inside at once, until another thread closes the gate.

    A thread that is inside must neither enter again nor close the gate, or it waits for itself.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed = 0
        self._inside = 0

    @contextmanager
    def entered(self, wait_seconds: float) -> Iterator[None]:
        """Be inside during the block; raises LetGo if the gate stays closed for ``wait_seconds``."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed == 0, wait_seconds):
                raise LetGo("the NVML session is closed while a GPU changes its kernel driver")
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self, wait_seconds: float) -> Iterator[None]:
        """Keep all threads out during the block; raises LetGo if one does not leave in time.

        Several threads may close the gate at the same time.
        """
        with self._changed:
            # Close it before waiting: otherwise threads that keep coming could keep it occupied for ever.
            self._closed += 1
        try:
            with self._changed:
                if not self._changed.wait_for(lambda: self._inside == 0, wait_seconds):
                    raise LetGo("cannot close the NVML session: a call has not returned yet")
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
