"""The supervisor starts, signals and waits for processes by name, and ends with its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from envtest.client.layout import ClusterLayout
from envtest.real.processes import Processes
from envtest.real.supervisor import Supervisor, send, serve, wake_on


@dataclass
class Owner:
    """The process that a supervisor ends with: it ends when ``life`` is closed."""

    ended: int
    life: socket.socket


@pytest.fixture
def owner() -> Generator[Owner, None, None]:
    """A living owner."""
    ended, life = socket.socketpair()
    with ended, life:
        yield Owner(ended.fileno(), life)


@pytest.fixture
def supervisor(short_folder: Path, owner: Owner) -> Generator[Supervisor, None, None]:
    """A supervisor that takes requests, whose children are this process's."""
    layout = ClusterLayout(short_folder)
    layout.logs.mkdir()
    before = signal.getsignal(signal.SIGCHLD)
    child_ended = wake_on(signal.SIGCHLD)
    yield Supervisor(layout, child_ended, [owner.ended])
    signal.signal(signal.SIGCHLD, before)
    os.close(child_ended)


def start(supervisor: Supervisor, name: str, *command: str, **environment: str) -> dict[str, Any]:
    """Ask for a process."""
    request = {"op": "start", "name": name, "command": list(command), "environment": environment}
    return supervisor.answer(request)


def wait(supervisor: Supervisor, name: str, timeout_seconds: float = 30.0) -> dict[str, Any]:
    """Ask for the end of a process."""
    return supervisor.answer({"op": "wait", "name": name, "timeout_seconds": timeout_seconds})


def test_a_process_runs_with_its_environment_and_its_output_is_logged(
    supervisor: Supervisor, short_folder: Path
) -> None:
    start(supervisor, "teller", "sh", "-c", "echo $MARK; echo oh >&2; exit 4", MARK="here")

    assert wait(supervisor, "teller") == {"returncode": 4}
    assert (short_folder / "logs" / "teller.log").read_text() == "here\noh\n"


def test_requests_come_through_the_socket_until_shutdown_is_asked_for(
    supervisor: Supervisor, short_folder: Path
) -> None:
    layout = ClusterLayout(short_folder)
    processes = Processes(layout, subprocess.Popen(["true"]))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(layout.supervisor_socket))
        listener.listen()

        def ask() -> None:
            processes.start("teller", ["sh", "-c", "echo told"])
            assert processes.named("teller").wait() == 0
            processes.shutdown()

        asking = threading.Thread(target=ask)
        asking.start()
        connection = serve(supervisor, listener)
        assert connection is not None
        with connection:
            send(connection, {})
        asking.join()
    assert processes.log("teller") == "told\n"


def test_the_end_of_the_owner_ends_the_service(
    supervisor: Supervisor, owner: Owner, short_folder: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(ClusterLayout(short_folder).supervisor_socket))
        listener.listen()
        owner.life.close()

        assert serve(supervisor, listener) is None


def test_the_end_of_the_owner_ends_a_wait(supervisor: Supervisor, owner: Owner) -> None:
    start(supervisor, "sleeper", "sleep", "1000")
    owner.life.close()

    assert wait(supervisor, "sleeper", timeout_seconds=1000) == {"returncode": None}
    supervisor.answer({"op": "signal", "name": "sleeper", "signal": int(signal.SIGKILL)})
