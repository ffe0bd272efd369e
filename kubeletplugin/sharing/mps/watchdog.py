"""Starts a supervisor that hangs anew in place: ended with its container, it would take its daemons along.

A kubelet that restarts the container ends every process in it, and with the daemons the work of all pods that
share a GPU by MPS. So no probe may do that. The process replaces itself instead (execve(2)): its id, its
control group and its children stay, and the new supervisor adopts the daemons as after any other start.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.process.service import Service

LOOK_SECONDS = 10.0
LOOKS = 3
"""So many looks in a row have to find that it hangs, as with a probe of a kubelet."""

_log = get_logger(__name__)


class Watchdog:
    """``why_not`` says why the process is not alive; empty means that it is."""

    def __init__(self, why_not: Callable[[], str], start_anew: Callable[[], object]) -> None:
        self._why_not = why_not
        self._start_anew = start_anew
        self._bad_looks = 0

    def look(self) -> None:
        """Look once, and start anew when it has hung for long enough."""
        why_not = self._why_not()
        self._bad_looks = self._bad_looks + 1 if why_not else 0
        if self._bad_looks >= LOOKS:
            _log.error("the supervisor hangs and is started anew; its daemons go on", reason=why_not)
            self._start_anew()


def watch(service: Service, why_not: Callable[[], str]) -> None:
    """Look at intervals for as long as the service lives."""
    service.repeat("watchdog", LOOK_SECONDS, Watchdog(why_not, start_anew).look)


def start_anew() -> None:
    """Replace this process by a new one of the same command; what it has open is closed."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command that runs already
