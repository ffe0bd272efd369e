"""The fake control daemon of MPS speaks the real one's language, as a process with files and children."""

import os
import signal
from pathlib import Path

import pytest

from fakegpu.mps.client import Connection
from tests.fakegpu.programs import Programs
from tests.gpus import CudaProcess


@pytest.fixture
def serving(programs: Programs) -> Programs:
    """A daemon for GPU 0."""
    assert programs.control("-d") == (0, [])
    return programs


def server(programs: Programs) -> int:
    (pid,) = programs.ask("get_server_list")
    return int(pid)


def holders(programs: Programs) -> tuple[int, ...]:
    return programs.machine.state.gpus[programs.machine.pci(0)].process_ids


def test_a_cuda_process_gets_the_limits_of_its_server_and_may_lower_them(serving: Programs) -> None:
    serving.ask("set_default_active_thread_percentage 40")
    serving.ask("set_default_device_pinned_mem_limit 0 2G")
    own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512MB,1=9G"}
    more = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "90", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9G"}
    with (
        CudaProcess(serving.pipes, process_id=11) as plain,
        CudaProcess(serving.pipes, own, process_id=12) as lower,
        CudaProcess(serving.pipes, more, process_id=13) as higher,
    ):
        pid = server(serving)
        assert (plain.limits.server, plain.limits.percentage, plain.limits.pinned_mib) == (
            pid,
            40,
            {"0": 2048},
        )
        assert (lower.limits.percentage, lower.limits.pinned_mib["0"]) == (10, 512)
        assert (higher.limits.percentage, higher.limits.pinned_mib) == (40, {"0": 2048})
        assert serving.ask(f"get_client_list {pid}") == ["11", "12", "13"]
        assert serving.ask("get_device_client_list") == [f"{serving.uuid(0)} {n}" for n in (11, 12, 13)]
        assert serving.ask(f"terminate_client {pid} 12") == []
        lower.wait_until_dropped()
        assert serving.ask(f"get_client_list {pid}") == ["11", "13"]


def test_a_killed_server_is_noticed_and_its_clients_are_dropped(serving: Programs) -> None:
    with CudaProcess(serving.pipes, process_id=11) as client:
        os.kill(server(serving), signal.SIGKILL)
        client.wait_until_dropped()
    assert serving.ask("get_server_list") == []
    assert holders(serving) == ()


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
