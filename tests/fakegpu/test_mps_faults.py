"""The fake control daemon of MPS goes wrong as the machine is told, and no further."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.eventually import eventually
from tests.fakegpu.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = "set_default_device_pinned_mem_limit"


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Four A30, without a daemon."""
    programs = Programs(tmp_path, "a30-quad")
    yield programs
    programs.end()


def test_a_daemon_that_hangs_answers_when_its_rule_is_gone(programs: Programs) -> None:
    assert programs.control("-d")[0] == 0
    programs.machine.spoil_mps("hang", LIMIT, gpu=0)
    asking = programs.starting(said=f"{LIMIT} 0 1G\n")
    with pytest.raises(subprocess.TimeoutExpired):
        asking.wait(0.5)
    programs.machine.heal_mps()
    assert asking.wait(30) == 0
    assert programs.ask("get_default_device_pinned_mem_limit 0") == ["1G"]


def test_a_start_that_hangs_can_be_given_up(programs: Programs) -> None:
    programs.machine.spoil_mps("hang", "start")
    starting = programs.starting("-d")
    with pytest.raises(subprocess.TimeoutExpired):
        starting.wait(0.5)
    starting.kill()
    assert starting.communicate(timeout=30)[0] == ""
    assert not programs.pipes.exists()
    programs.machine.heal_mps()
    assert programs.control("-d")[0] == 0


def test_a_daemon_that_dies_leaves_its_files_and_no_answer(programs: Programs) -> None:
    assert programs.control("-d")[0] == 0
    programs.machine.spoil_mps("die", "start_server", times=1)
    assert programs.control(said="start_server -uid 0\n") == (1, [])
    assert (programs.pipes / "control").exists()
    # Its client sees the connection end a moment before the kernel releases the dead daemon's lock.
    eventually("another daemon starts", lambda: programs.control("-d")[0] == 0)
    assert programs.ask("start_server -uid 0") == []


def test_a_daemon_that_lies_takes_a_limit_and_has_another(programs: Programs) -> None:
    assert programs.control("-d")[0] == 0
    programs.machine.spoil_mps("lie", LIMIT, "7G", times=1)
    assert programs.ask(f"{LIMIT} 0 1G") == []
    assert programs.ask("get_default_device_pinned_mem_limit 0") == ["7G"]
    assert programs.ask(f"{LIMIT} 0 1G") == []
    assert programs.ask("get_default_device_pinned_mem_limit 0") == ["1G"]


def test_a_daemon_that_refuses_says_so_and_does_nothing(programs: Programs) -> None:
    assert programs.control("-d")[0] == 0
    programs.machine.spoil_mps("refuse", LIMIT, "not today")
    assert programs.ask(f"{LIMIT} 0 1G") == ["not today"]
    assert programs.ask("get_default_device_pinned_mem_limit 0") == ["0M"]


@pytest.mark.parametrize("kind", ["refuse", "die"])
def test_a_start_that_fails_says_why_and_leaves_nothing(programs: Programs, kind: str) -> None:
    words = "GPU 0 is not in compute mode EXCLUSIVE_PROCESS"
    if kind == "refuse":
        programs.machine.spoil_mps("refuse", "start", words, times=1)
        assert programs.control("-d") == (1, [words])
    else:
        programs.machine.spoil_mps("die", "start", times=1)
        assert programs.control("-d")[0] == 1
    assert not programs.pipes.exists()
    assert programs.machine.state.mps_faults == ()
    assert programs.control("-d")[0] == 0


def test_a_rule_for_one_gpu_leaves_the_daemons_of_others_alone(programs: Programs) -> None:
    programs.machine.spoil_mps("refuse", "*", "no", gpu=1)
    assert programs.control("-d", visible="0")[0] == 0
    assert programs.ask("get_server_list") == []
    programs.ask("quit")
    assert programs.control("-d", visible=programs.uuid(1)) == (1, ["no"])
