"""Waits for what the NVIDIA driver tells of the node's GPUs, in a thread of its own."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from driver.errors import NvmlError
from driver.hardware.gate import LetGo
from driver.kube.backoff import Backoff
from driver.nvml.api import DriverNotLoaded, GpuLost, SessionLost
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.health.xid_listener import Hearing
    from driver.hardware.gpu import Inventory
    from driver.nvml.health.calls import EventSet

_log = get_logger(__name__)

_LONG_SECONDS = 3600.0
_AGAIN_SECONDS = (0.1, 15.0)
_DEAF = frozenset({"lost", "hung"})
"""What is wrong with a GPU of which no event can be expected."""


class EventLane:
    """Has ``hearing`` hear every event, from the first look on until ``stop``; ``run`` works meanwhile.

    ``watch`` makes a set of all GPUs that can tell something. Where its waits fail, or other GPUs have come,
    a new one is made, before the old one is given up where that is possible: what is told in between is
    heard as well. ``look_now`` hears that the GPUs are to be looked at, since events may have been missed, or
    a GPU is lost. No lock is held while NVML is waited for.
    """

    def __init__(self, watch: Callable[[], EventSet], hearing: Hearing, look_now: Callable[[], None]) -> None:
        self._watch = watch
        self._hearing = hearing
        self._look_now = look_now
        self._changed = threading.Condition()
        self._stopped = False
        self._wanted: frozenset[str] = frozenset()
        self._tried: frozenset[str] = frozenset()
        self._events: EventSet | None = None
        self._backoff = Backoff(*_AGAIN_SECONDS)
        self._told = ""

    def saw(self, inventory: Inventory) -> None:
        """Take in a look: when GPUs have come that can tell something, a new set is made."""
        self._hearing.saw(inventory)
        wanted = frozenset(
            gpu.uuid for gpu in inventory.gpus if not any(problem.reason in _DEAF for problem in gpu.problems)
        )
        with self._changed:
            self._wanted = wanted
            self._tried &= wanted
            if not wanted <= self._tried:
                self._close()
                self._changed.notify_all()

    def stop(self) -> None:
        """Make ``run`` return."""
        with self._changed:
            self._stopped = True
            self._close()
            self._changed.notify_all()

    def run(self) -> None:
        """Wait for events and have them heard."""
        while self._has_gpus():
            with self._changed:
                self._tried = wanted = self._wanted
            try:
                events = self._watch()
            except NvmlError as error:
                self._pause(error)
                continue
            if self._takes(events, wanted):
                self._tell(f"events of {len(events.watched())} of {len(wanted)} GPUs are heard")
                self._look_now()  # at what happened before
                self._listen(events)

    def _takes(self, events: EventSet, wanted: frozenset[str]) -> bool:
        """Have a new set take the place of the old one; whether it still is what is wanted."""
        with self._changed:
            old, self._events = self._events, events
            good = not self._stopped and wanted <= self._tried
            if not good:
                self._close()
        if old is not None:
            with suppress(NvmlError):
                while (event := old.wait(0)) is not None:
                    self._hearing.hear(event)
            old.close()
        return good

    def _listen(self, events: EventSet) -> None:
        """Hear events until a wait fails."""
        began_at = time.monotonic()
        try:
            while True:
                left = self._hearing.seconds_left()
                event = events.wait(_LONG_SECONDS if left is None else left)
                if event is None:
                    self._hearing.look_if_due()
                else:
                    self._hearing.hear(event)
        except NvmlError as error:
            if isinstance(error, GpuLost):
                self._look_now()
            if isinstance(error, SessionLost):
                with self._changed:
                    self._close()
            if time.monotonic() - began_at > _AGAIN_SECONDS[1]:
                self._backoff.reset()
            self._pause(error)

    def _has_gpus(self) -> bool:
        """Wait until there are GPUs that can tell something; False when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._wanted)
            return not self._stopped

    def _pause(self, error: NvmlError) -> None:
        """Wait before the next try, less long when GPUs come."""
        if not isinstance(error, (SessionLost, LetGo, DriverNotLoaded)):
            self._tell(f"events are not heard: {error}")
        wait_seconds = self._backoff.next_seconds()
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._wanted <= self._tried, wait_seconds)

    def _close(self) -> None:
        """Close the set that there is. The lock is held; closing waits for nobody."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            _log.info("events of GPUs", told=sentence)
