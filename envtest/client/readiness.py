"""Waits for components that cannot tell when they are ready: asks them again in short intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from envtest.client.errors import NotReady

READY_SECONDS = 90.0
POLL_SECONDS = 0.05

T = TypeVar("T")


class Watched(Protocol):
    """What is asked of processes while something is waited for."""

    def check_running(self, name: str) -> None:
        """Return if a process runs; raises NotReady."""

    def log_tail(self, name: str) -> str:
        """The last lines that a process wrote."""


def wait_until(needed: Sequence[str], processes: Watched, attempt: Callable[[], T | None]) -> T:
    """Try again and again until an attempt gives something, and return that.

    ``needed`` are the names of the processes without which it never will, the one in question first.

    Raises:
        NotReady: one of them ended, or nothing came of it in time.
    """
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        result = attempt()
        if result is not None:
            return result
        for name in needed:
            processes.check_running(name)
        time.sleep(POLL_SECONDS)
    if not needed:
        raise NotReady(f"nothing came of it within {READY_SECONDS:g} s")
    tail = processes.log_tail(needed[0])
    raise NotReady(f"{needed[0]} is not ready after {READY_SECONDS:g} s:\n{tail}")
