"""The fake machine: what is done to it shows in NVML at once, in every process, and goes away again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from driver.errors import ConfigError
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.nvml.fake_nvml import FakeNvml


@pytest.fixture(params=["memory", "file"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> FakeMachine:
    """Eight GPUs, with the state in memory and in a file."""
    state = f"@{tmp_path / 'state.json'}" if request.param == "file" else ""
    return FakeMachine.open(f"fake:dgx-a100{state}")


@pytest.fixture
def nvml(machine: FakeMachine) -> FakeNvml:
    """A process that has begun its session."""
    nvml = machine.nvml()
    nvml.init()
    return nvml


def test_a_call_or_gpu_that_is_not_there_cannot_be_spoiled(machine: FakeMachine) -> None:
    with pytest.raises(ConfigError, match="no call 'uid'"):
        machine.fail("uid")
    with pytest.raises(ConfigError, match="no GPU 8"):
        machine.fail("uuid", gpu=8)
    with pytest.raises(ConfigError, match="changes nothing"):
        machine.fail_after("gpu_instances")


def test_changes_of_several_processes_do_not_undo_each_other(tmp_path: Path) -> None:
    spec = f"fake:t4@{tmp_path / 'state.json'}"
    machine = FakeMachine.open(spec)
    program = (
        "from fakegpu.machine.fake_machine import FakeMachine\n"
        f"machine = FakeMachine.open({spec!r})\n"
        "print('ready', flush=True)\ninput()\n"
        "for _ in range(60):\n    machine.fail('uuid')\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert [fault.number for fault in machine.state.faults] == list(range(1, 181))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "machine": "t4"}', "\x00"])
def test_a_broken_state_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(text)
    with pytest.raises(ConfigError, match=r"state\.json"):
        FakeMachine.open(f"fake:t4@{state}")
