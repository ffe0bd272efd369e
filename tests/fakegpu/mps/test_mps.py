"""The fake control daemon of MPS speaks the real one's language, as a process with files and children."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.machine.spec import MACHINES
from fakegpu.mps.client import PRIVILEGED, ClientRefused, Connection, CudaProcess, DaemonGone
from tests.fakegpu.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALREADY = ["An instance of this daemon is already running"]
NO_DAEMON = ["Cannot find MPS control daemon process"]


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


def test_a_daemon_in_the_foreground_stays_with_its_caller(programs: Programs) -> None:
    process = programs.starting("-f")
    for _ in range(100):
        if programs.control(said="help\n")[0] == 0:
            break
    assert programs.daemon_pid() == process.pid
    programs.ask("quit")
    assert process.wait(30) == 0


def test_a_daemon_needs_folders_that_can_be_made_and_a_short_path(programs: Programs) -> None:
    programs.pipes = programs.pipes / "deep" / "er"
    code, lines = programs.control("-d")
    assert code == 1
    assert "Failed to create directory" in lines[0]
    programs.pipes = programs.root / ("x" * 100)
    assert programs.control("-d")[0] == 1
    assert programs.control(said="help\n") == (1, NO_DAEMON)


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


@pytest.mark.parametrize(
    "command",
    [
        "set_default_active_thread_percentage 0", "set_default_active_thread_percentage 101",
        "set_default_active_thread_percentage half", "set_default_active_thread_percentage",
        "set_default_device_pinned_mem_limit 0 10", "set_default_device_pinned_mem_limit 0 -1G",
        "set_default_device_pinned_mem_limit 1 10G", "get_default_device_pinned_mem_limit 1",
        "get_active_thread_percentage 1", "get_client_list x", "shutdown_server 1", "make_coffee",
        "start_server", "quit -t soon",
    ],
)  # fmt: skip
def test_a_command_that_makes_no_sense_is_answered_and_changes_nothing(
    serving: Programs, command: str
) -> None:
    assert len(serving.ask(command)) == 1
    assert serving.ask("get_default_active_thread_percentage") == ["100.0"]
    assert serving.ask("get_default_device_pinned_mem_limit 0") == ["0M"]
    assert serving.ask("get_server_list") == []


def test_an_exclusive_gpu_that_another_process_has_takes_no_server(serving: Programs) -> None:
    assert serving.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS")[0] == 0
    serving.machine.set_processes(0, (4711,))
    assert "another process has the GPU" in serving.ask("start_server -uid 0")[0]
    assert serving.ask("get_server_list") == []
    serving.machine.set_processes(0, ())
    assert serving.ask("start_server -uid 0") == []
    assert len(holders(serving)) == 1


def test_a_foreign_daemon_keeps_an_exclusive_gpu_from_ours(serving: Programs, tmp_path: Path) -> None:
    assert serving.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS")[0] == 0
    ours, serving.pipes = serving.pipes, tmp_path / "foreign"
    assert serving.control("-d")[0] == 0
    assert serving.ask("start_server -uid 0") == []
    foreign, serving.pipes = serving.pipes, ours
    assert "another process has the GPU" in serving.ask("start_server -uid 0")[0]
    with pytest.raises(ClientRefused):
        CudaProcess(serving.pipes)
    with CudaProcess(foreign):
        assert len(holders(serving)) == 1
    serving.pipes = foreign
    serving.end()
    serving.pipes = ours
    assert serving.ask("start_server -uid 0") == []


def test_a_daemon_ends_with_its_machine(serving: Programs) -> None:
    pid = serving.daemon_pid()
    (serving.root.parent / "state.json").unlink()
    wait_until_gone(pid)
    serving.machine = FakeMachine.open("dgx-a100")


def test_a_server_needs_its_program_and_a_device(serving: Programs) -> None:
    (serving.root / "usr/bin/nvidia-cuda-mps-server").unlink()
    assert "is missing" in serving.ask("start_server -uid 0")[0]
    serving.ask("quit")
    assert serving.control("-d", visible="GPU-of-somebody-else")[0] == 0
    assert serving.ask("get_default_device_pinned_mem_limit 0") == ["Invalid device 0"]


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


def test_a_mig_device_takes_fewer_clients(programs: Programs) -> None:
    nvml = programs.machine.nvml()
    nvml.init()
    nvml.device_by_index(7).set_mig_mode(True)
    programs.machine.reset(7)
    device = nvml.device_by_index(7)
    profile = device.gpu_instance_profiles()[0]
    instance = device.create_gpu_instance(profile.id, device.gpu_instance_placements(profile.id)[0])
    device.create_compute_instance(instance.id, 0)
    assert programs.control("-d", visible=device.mig_devices()[0].uuid)[0] == 0
    with ExitStack() as stack:
        for number in range(6):
            stack.enter_context(CudaProcess(programs.pipes, process_id=100 + number))
        with pytest.raises(ClientRefused, match="has 6 clients"):
            CudaProcess(programs.pipes, process_id=99)


def test_quit_waits_for_clients_and_lets_no_new_ones_in(serving: Programs) -> None:
    client, line = CudaProcess(serving.pipes, process_id=11), Connection(serving.pipes, PRIVILEGED)
    assert "quit" in line.ask({"command": "help"})["answer"]
    line.send({"command": "quit"})
    with pytest.raises(ClientRefused, match="quitting"):
        CudaProcess(serving.pipes, process_id=12)
    assert len(holders(serving)) == 1
    client.close()
    assert line.receive() == {"answer": ""}
    line.close()
    assert holders(serving) == ()
    with pytest.raises(DaemonGone):
        CudaProcess(serving.pipes)


def test_a_server_ends_after_its_clients_or_at_once_when_forced(serving: Programs) -> None:
    first = CudaProcess(serving.pipes, process_id=11)
    pid = server(serving)
    serving.ask(f"shutdown_server {pid}")
    assert serving.ask(f"get_server_status {pid}") == ["SHUTTING_DOWN"]
    first.close()
    wait_until_gone(pid)
    with CudaProcess(serving.pipes, process_id=12) as second:
        pid = server(serving)
        serving.ask(f"shutdown_server {pid} -f")
        second.wait_until_dropped()
    wait_until_gone(pid)


def test_a_killed_server_is_noticed_and_its_clients_are_dropped(serving: Programs) -> None:
    with CudaProcess(serving.pipes, process_id=11) as client:
        os.kill(server(serving), signal.SIGKILL)
        client.wait_until_dropped()
    assert serving.ask("get_server_list") == []
    assert holders(serving) == ()


def test_clients_of_another_user_wait_unless_the_daemon_serves_many(serving: Programs) -> None:
    first = CudaProcess(serving.pipes, process_id=11, user_id=1000)
    waiting = OtherUser(serving, 12, 2000)
    assert not waiting.let_in.is_set()
    assert serving.ask(f"get_client_list {server(serving)}") == ["11"]
    first.close()
    assert waiting.let_in.wait(30)
    assert serving.ask(f"get_client_list {server(serving)}") == ["12"]
    waiting.process.close()
    serving.ask("quit")
    assert serving.control("-d", "-M")[0] == 0
    with (
        CudaProcess(serving.pipes, process_id=11, user_id=1000) as one,
        CudaProcess(serving.pipes, process_id=12, user_id=2000) as other,
    ):
        assert one.limits.server == other.limits.server


class OtherUser:
    """A CUDA process that connects in a thread of its own."""

    process: CudaProcess

    def __init__(self, programs: Programs, process_id: int, user_id: int) -> None:
        self.let_in = threading.Event()

        def connect() -> None:
            self.process = CudaProcess(programs.pipes, process_id=process_id, user_id=user_id)
            self.let_in.set()

        threading.Thread(target=connect, daemon=True).start()
