"""The fake control daemon of MPS speaks the real one's language, as a process with files and children."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fakegpu.machine.spec import MACHINES
from fakegpu.mps.client import ClientRefused, CudaProcess
from tests.fakegpu.programs import Programs

ALREADY = ["An instance of this daemon is already running"]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Eight A100, without a daemon."""
    programs = Programs(tmp_path, "dgx-a100")
    yield programs
    programs.end()


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


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process that need not be our child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 30)[0]
    finally:
        os.close(descriptor)


def test_sigterm_ends_the_daemon_and_its_server(serving: Programs) -> None:
    serving.ask("start_server -uid 0")
    pid, child = serving.daemon_pid(), server(serving)
    os.kill(pid, signal.SIGTERM)
    wait_until_gone(pid)
    wait_until_gone(child)
    assert holders(serving) == ()
    assert not (serving.pipes / "control").exists()


def test_one_pipe_directory_has_one_daemon(serving: Programs) -> None:
    pid = serving.daemon_pid()
    assert serving.control("-d") == (1, ALREADY)
    assert serving.control("-f") == (1, ALREADY)
    assert serving.daemon_pid() == pid
    assert serving.ask("get_server_list") == []


def test_defaults_are_read_back_as_the_real_daemon_shows_them(serving: Programs) -> None:
    assert serving.ask("get_default_active_thread_percentage") == ["100.0"]
    assert serving.ask("get_default_device_pinned_mem_limit 0") == ["0M"]
    assert serving.ask("set_default_active_thread_percentage 25") == ["25.0"]
    assert serving.ask("get_default_active_thread_percentage") == ["25.0"]
    for given, read in (("512M", "512M"), ("1024M", "1G"), ("4606M", "4G"), ("10G", "10G")):
        assert serving.ask(f"set_default_device_pinned_mem_limit 0 {given}") == []
        assert serving.ask("get_default_device_pinned_mem_limit 0") == [read]


def test_a_limit_by_uuid_is_taken_and_not_applied(serving: Programs) -> None:
    assert serving.ask(f"set_default_device_pinned_mem_limit {serving.uuid(0)} 2G") == []
    assert serving.ask(f"get_default_device_pinned_mem_limit {serving.uuid(0)}") == ["2G"]
    assert serving.ask("get_default_device_pinned_mem_limit 0") == ["0M"]


def test_an_exclusive_gpu_that_another_process_has_takes_no_server(serving: Programs) -> None:
    assert serving.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS")[0] == 0
    serving.machine.set_processes(0, (4711,))
    assert "another process has the GPU" in serving.ask("start_server -uid 0")[0]
    assert serving.ask("get_server_list") == []
    serving.machine.set_processes(0, ())
    assert serving.ask("start_server -uid 0") == []
    assert len(holders(serving)) == 1


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


@pytest.mark.parametrize(("machine", "most"), [("dgx-a100", 48), ("p4", 16)])
def test_a_server_has_only_so_many_clients(tmp_path: Path, machine: str, most: int) -> None:
    if machine == "p4":
        machine = str(tmp_path / "p4.yaml")
        text = (MACHINES / "t4.yaml").read_text()
        (tmp_path / "p4.yaml").write_text(text.replace("Turing", "Pascal").replace('"7.5"', '"6.1"'))
    programs = Programs(tmp_path, machine)
    with ExitStack() as stack:
        assert programs.control("-d")[0] == 0
        stack.callback(programs.end)
        for number in range(most):
            stack.enter_context(CudaProcess(programs.pipes, process_id=100 + number))
        with pytest.raises(ClientRefused, match=f"has {most} clients"):
            CudaProcess(programs.pipes, process_id=99)
        assert len(programs.ask(f"get_client_list {server(programs)}")) == most


def test_a_killed_server_is_noticed_and_its_clients_are_dropped(serving: Programs) -> None:
    with CudaProcess(serving.pipes, process_id=11) as client:
        os.kill(server(serving), signal.SIGKILL)
        client.wait_until_dropped()
    assert serving.ask("get_server_list") == []
    assert holders(serving) == ()
