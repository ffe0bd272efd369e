"""Talks to the control daemon of a fake MPS: as the command line does, and as a CUDA process does."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from driver.errors import DriverError

SOCKET = "control"
"""The daemon's socket in the pipe directory, for clients and questions: any user may connect."""

PRIVILEGED = "control_privileged"
"""The one that takes all commands; root alone may connect, also root of a container that sees it."""


class DaemonGone(DriverError):
    """No daemon serves the pipe directory, or it ended before it answered."""


class ClientRefused(DriverError):
    """The daemon refuses the CUDA process, and says why."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What the server of a client holds it to; ``pinned_mib`` is by device, absent is without a limit."""

    server: int
    percentage: float
    pinned_mib: dict[str, int]


class Line:
    """One connection to the daemon of a pipe directory."""

    def __init__(self, pipes: Path, name: str = SOCKET) -> None:
        """Connect to one of the daemon's sockets; raises DaemonGone."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(pipes / name))
        except OSError as error:
            self._socket.close()
            raise DaemonGone(f"no control daemon of MPS serves {pipes}", "start it") from error
        self._file = self._socket.makefile("rb")

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a question and wait for its answer; raises DaemonGone."""
        self.say(question)
        return self.hear()

    def say(self, question: Mapping[str, Any]) -> None:
        """Send a question; if the daemon is gone, ``hear`` notices that."""
        with suppress(ConnectionError):
            self._socket.sendall(json.dumps(question).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Wait for the next answer; raises DaemonGone."""
        line = b""
        with suppress(ConnectionError):
            line = self._file.readline()
        if not line:
            raise DaemonGone("the control daemon of MPS ended before it answered", "start it again")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the daemon ends the connection; raises TimeoutError when it does not."""
        self._socket.settimeout(seconds)
        with suppress(ConnectionError):
            self._file.read()

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()


class CudaProcess:
    """A CUDA process under MPS, as the daemon sees it: connected for as long as it is open.

    ``environment`` is read as CUDA does: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and
    CUDA_MPS_PINNED_DEVICE_MEM_LIMIT lower the server's limits. Opening waits while another user's processes
    hold the server, and raises DaemonGone or ClientRefused.
    """

    def __init__(
        self,
        pipes: Path,
        environment: Mapping[str, str] | None = None,
        *,
        process_id: int | None = None,
        user_id: int | None = None,
    ) -> None:
        own = environment or {}
        self._line = Line(pipes)
        answer = self._line.ask(
            {
                "pid": os.getpid() if process_id is None else process_id,
                "uid": os.getuid() if user_id is None else user_id,
                "percentage": own.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
                "pinned": own.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            }
        )
        if "refused" in answer:
            self._line.close()
            raise ClientRefused(f"MPS refuses the process: {answer['refused']}", "end another client")
        self.limits = ClientLimits(answer["server"], answer["percentage"], answer["pinned_mib"])

    def wait_until_dropped(self, seconds: float = 30.0) -> None:
        """Wait until the server or the daemon ends the connection; raises TimeoutError when they do not."""
        self._line.wait_for_end(seconds)

    def close(self) -> None:
        """End the process, as far as MPS sees it."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
