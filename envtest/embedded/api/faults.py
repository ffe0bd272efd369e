"""Makes requests fail on demand: by a status, a hang, a delay, stale data, or a closed connection."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal

ALWAYS = 1 << 62


@dataclass(slots=True)
class Fault:
    """A fault of the next ``times`` requests whose verb and path match (``ALWAYS``: of all).

    ``verb`` is a verb of the API (``list``, ``watch``, ``create``...) or ``*``; ``path`` is a regular
    expression searched in the path. ``kind`` ``status`` answers ``code``, with Retry-After when
    ``retry_after_seconds`` is set; ``hang`` answers nothing until ``release``; ``delay`` answers after
    ``delay_seconds``; ``stale`` answers a get or list as of ``resource_version``, as a server whose cache is
    behind does; ``close`` ends the connection without an answer.
    """

    verb: str
    path: str
    kind: Literal["status", "hang", "delay", "stale", "close"] = "status"
    code: int = 500
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    resource_version: int = 0
    times: int = 1
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Serve the requests that hang, and let no further one fail."""
        self.times = 0
        self.released.set()


class Faults:
    """The faults of a server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Let requests fail from now on."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """End all faults and release the requests that hang."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.release()

    def take(self, verb: str, path: str) -> Fault | None:
        """The fault for this request, whose count goes down by one; None where there is none."""
        # Without the lock, since most servers have no faults and every request asks.
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.verb in ("*", verb) and re.search(fault.path, path):
                    fault.times -= 1
                    return fault
        return None
