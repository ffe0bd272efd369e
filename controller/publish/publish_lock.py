"""Lets only one controller of a node publish at a time, although two run during a rolling update.

Two of different versions, or with different rules, would otherwise overwrite each other's slices. The second
one waits, and then goes on with the slices that are there. A version from before the lock does not wait.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

from driver.process.log import get_logger

# flock(2) waits for ever or not at all, and a waiting thread could not be stopped.
AGAIN_SECONDS = 0.2
"""The time between two tries."""

_log = get_logger(__name__)


class PublishLock:
    """The lock on the plugin's ``folder`` of the node.

    ``on_taken()`` is called when this process has it, ``on_busy()`` each time that another one has it.
    """

    def __init__(
        self,
        folder: Path,
        on_taken: Callable[[], None],
        on_busy: Callable[[], None],
        stop_event: threading.Event,
    ) -> None:
        self._folder = folder
        self._on_taken = on_taken
        self._on_busy = on_busy
        self._stop_event = stop_event
        self._descriptor: int | None = None
        self._last_logged = ""

    def run(self) -> None:
        """Take the lock as soon as it is free; returns then, or when the process stops."""
        while not self._try_lock():
            if self._stop_event.wait(AGAIN_SECONDS):
                return
        self._on_taken()

    def release(self) -> None:
        """Let the next controller publish; nothing may be written after that."""
        descriptor, self._descriptor = self._descriptor, None
        # Closing releases the lock. The kernel does the same for a process that dies.
        if descriptor is not None:
            os.close(descriptor)

    def _try_lock(self) -> bool:
        """Try once; returns whether we have the lock now."""
        try:
            # The plugin's folder itself is locked: both pods mount it, and no file has to be made.
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
        except FileNotFoundError:
            # Without the folder there is no plugin, and nothing to publish.
            return False
        except BlockingIOError:
            self._log_once(_log.info, "another controller of this node publishes, so this one waits")
            self._on_busy()
            return False
        except OSError as error:
            text = f"nothing is published: cannot lock {self._folder} ({error.strerror}); make it readable"
            self._log_once(_log.error, text)
            return False
        self._descriptor = descriptor
        return True

    def _log_once(self, say: Callable[[str], object], text: str) -> None:
        """Log the text, unless it was the last one."""
        if text != self._last_logged:
            self._last_logged = text
            say(text)
