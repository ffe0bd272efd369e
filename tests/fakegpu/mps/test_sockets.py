"""The pretend daemon's sockets: one for all, which changes nothing, and one for root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakegpu.mps.client import Connection, CudaProcess
from tests.fakegpu.programs import Programs


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Programs]:
    """Eight A100, with a daemon for GPU 0."""
    programs = Programs(tmp_path, "dgx-a100")
    assert programs.control("-d") == (0, [])
    yield programs
    programs.end()


def test_who_sees_the_socket_of_clients_alone_may_ask_and_change_nothing(
    serving: Programs, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "control").hardlink_to(serving.pipes / "control")
    client = CudaProcess(seen, process_id=11)
    line = Connection(seen)

    def answer(command: str) -> str:
        return str(line.ask({"command": command})["answer"])

    (server,) = answer("get_server_list").split()
    assert answer(f"get_client_list {server}") == "11"
    for command in ("quit", "set_default_active_thread_percentage 100", f"shutdown_server {server} -f"):
        assert answer(command) == f"Permission denied: {command.split()[0]}"
    line.close()
    pipes, serving.pipes = serving.pipes, tmp_path / "seen"
    assert serving.control(said="quit\n") == (0, ["Permission denied: quit"])
    serving.pipes = pipes
    os.kill(serving.daemon_pid(), 0)
    client.close()
