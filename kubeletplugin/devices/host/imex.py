"""What this node knows of its multi-node NVLink: the clique of its GPUs, and whether nvidia-imex is up.

The daemon nvidia-imex belongs to the host. It is asked by its own program over a unix socket, so that nothing
on the network can answer in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked
from kubeletplugin.devices.host.driver_programs import DriverPrograms, ProgramHangs, run_program

PROGRAM = "nvidia-imex-ctl"
SECONDS = 3.0
"""How long the program may take. With -N, which asks all nodes, it may hang; only -q is asked here."""


class ImexNotReady(ClaimBlocked):
    """nvidia-imex of this host does not serve yet, so no program could export memory over the channel."""


class Imex:
    """Asks the host's nvidia-imex. Claims that come at once share one question.

    ``was_ready`` is whether it said yes when it was asked last, None before.
    """

    def __init__(
        self, programs: DriverPrograms, socket: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._programs = programs
        self._socket = socket
        self._clock = clock
        self.was_ready: bool | None = None
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._why_not: ClaimBlocked | None = None

    def check(self) -> None:
        """Raise ImexNotReady or ProgramHangs unless the daemon says that it is ready.

        Also NodeIncomplete and StorageError.
        """
        came_at = self._clock()
        with self._lock:
            # Asked by somebody else since this call came.
            if self._asked_at < came_at:
                began_at = self._clock()
                self.was_ready = False
                self._why_not = self._ask()
                self.was_ready = self._why_not is None
                self._asked_at = began_at
            if self._why_not is not None:
                raise self._why_not

    def _ask(self) -> ClaimBlocked | None:
        program = self._programs.find(PROGRAM)
        try:
            said = run_program(program, ["-u", str(self._socket), "-q"], timeout_seconds=SECONDS)
        except ProgramHangs as error:  # for all who wait, so that they do not wait one after the other
            return error
        # It prints the state of this host's daemon; an exit code of 0 alone may mean INITIALIZING.
        if said.code == 0 and said.lines[-1:] == ("READY",):
            return None
        return ImexNotReady(
            f"nvidia-imex of this node is not ready: {said.words}",
            "start it with `systemctl start nvidia-imex`, and see /var/log/nvidia-imex.log; it needs "
            f"IMEX_CMD_ENABLED=1 and IMEX_CMD_UNIX_DOMAIN_PATH={self._socket}",
        )


@dataclass(frozen=True, slots=True)
class Rack:
    """The fabric of several nodes that this node may be in.

    ``clique()`` is that of its GPUs as published, None if it is in none, or if no slice was seen yet.
    """

    clique: Callable[[], str | None]
    imex: Imex
