"""Lets one controller of a node publish at a time, though two run in a rolling update.

Two of different versions, or with different rules, would otherwise overwrite each other's slices until one
ends. The lock is on the plugin's folder and ends with its holder. The later controller waits, and goes on
with the slices that are there. A version that does not know the lock writes at any time.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

from driver.process.log import get_logger

AGAIN_SECONDS = 0.2
"""How often the lock is tried: flock(2) waits for ever or not at all."""

_log = get_logger(__name__)


class PublishLock:
    """The right to publish for the node of the plugin's ``folder``; ``taken()`` is called once it is held."""

    def __init__(self, folder: Path, taken: Callable[[], None], stop_event: threading.Event) -> None:
        self._folder = folder
        self._taken = taken
        self._stop_event = stop_event
        self._descriptor: int | None = None
        self._told = ""

    def run(self) -> None:
        """Take it as soon as it is free and keep it; returns then, or when the process stops."""
        while not self._take():
            if self._stop_event.wait(AGAIN_SECONDS):
                return
        self._taken()

    def give(self) -> None:
        """Let the next one publish; nothing may be written after that."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _take(self) -> bool:
        """Whether it is ours now; without the folder there is no plugin, and nothing to publish."""
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
        except FileNotFoundError:
            return False
        except BlockingIOError:
            self._tell(_log.info, "another controller of this node publishes: this one stands by")
            return False
        except OSError as error:
            text = (
                f"nothing is published: {self._folder} cannot be locked ({error.strerror}); make it readable"
            )
            self._tell(_log.error, text)
            return False
        self._descriptor = descriptor
        return True

    def _tell(self, say: Callable[[str], object], text: str) -> None:
        """Log it, once until it is something else."""
        if text != self._told:
            self._told = text
            say(text)
