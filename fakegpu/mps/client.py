"""Talks to the control daemon of a fake MPS, as the command line does and as a CUDA process does.

Both send lines of JSON to a unix socket and get lines of JSON back. The real daemon's protocol is another.
"""

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
"""The daemon's socket in the pipe directory for clients and queries: any user may connect."""

PRIVILEGED = "control_privileged"
"""The socket that takes all commands: only root may connect, also root in a container that sees it."""


class DaemonGone(DriverError):
    """No daemon serves the pipe directory, or the daemon ended before it answered."""


class ClientRefused(DriverError):
    """The daemon refuses the CUDA process; the message says why."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a client, and the process id of its server.

    ``percentage`` is of the threads; ``pinned_mib`` is memory by device ordinal, without an entry unlimited.
    """

    server: int
    percentage: float
    pinned_mib: dict[str, int]


class Connection:
    """A connection to the daemon of a pipe directory."""

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
        self.send(question)
        return self.receive()

    def send(self, question: Mapping[str, Any]) -> None:
        """Send a question. If the daemon is gone, ``receive`` raises that."""
        with suppress(ConnectionError):
            self._socket.sendall(json.dumps(question).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for the next answer; raises DaemonGone."""
        line = b""
        with suppress(ConnectionError):
            line = self._file.readline()
        # An empty line is the end of the connection.
        if not line:
            raise DaemonGone("the control daemon of MPS ended before it answered", "start it again")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the daemon ends the connection; raises TimeoutError if it does not in time."""
        self._socket.settimeout(seconds)
        with suppress(ConnectionError):
            self._file.read()

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()


class CudaProcess:
    """A CUDA process under MPS as the daemon sees it: a client from the constructor to ``close``.

    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in ``environment`` lower the
    server's limits, as in CUDA. The daemon finds out the process id unless it is given: in a container a
    process does not know the one that the node has for it. The constructor waits while the server has
    processes of another user, and raises DaemonGone or ClientRefused. ``devices`` are the UUIDs of the
    server's devices, the only ones that CUDA shows the process.
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
        self._connection = Connection(pipes)
        answer = self._connection.ask(
            {
                "pid": process_id,
                "uid": os.getuid() if user_id is None else user_id,
                "percentage": own.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
                "pinned": own.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
            }
        )
        if "refused" in answer:
            self._connection.close()
            raise ClientRefused(f"MPS refuses the process: {answer['refused']}", "end another client")
        self.limits = ClientLimits(answer["server"], answer["percentage"], answer["pinned_mib"])
        self.devices = frozenset[str](answer["devices"])

    def wait_until_dropped(self, seconds: float = 30.0) -> None:
        """Wait until the server or the daemon ends the connection; raises TimeoutError if neither does."""
        self._connection.wait_for_end(seconds)

    def close(self) -> None:
        """End the process, as far as MPS sees it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
