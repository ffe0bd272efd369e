"""Programs of the driver are run without a shell, with their libraries, and with bounds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from fakegpu.driver_root import build_driver_root
from fakegpu.machine import FakeMachine
from kubeletplugin.host.driver_files import DriverRoot
from kubeletplugin.host.driver_programs import (
    MOST_OUTPUT_BYTES,
    Program,
    ProgramHangs,
    find_program,
    run_program,
)
from kubeletplugin.mps.processes import ended_within

SHELL = Program(Path("/bin/sh"), {"PATH": "/usr/bin:/bin"})


def test_a_program_finds_its_libraries_below_the_driver_root(tmp_path: Path) -> None:
    root = build_driver_root(tmp_path / "root", FakeMachine.open("a30-quad"))
    program = find_program(DriverRoot(root), "nvidia-smi")
    assert program.path == root / "usr/bin/nvidia-smi"
    assert str(root / "usr/lib/x86_64-linux-gnu") in program.environment["LD_LIBRARY_PATH"].split(":")
    assert program.environment["PATH"].split(":")[0] == str(root / "usr/bin")


def test_nothing_of_this_processs_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    said = run_program(SHELL, ["-c", "echo ${CUDA_VISIBLE_DEVICES:-none} $GIVEN"], environment={"GIVEN": "x"})
    assert (said.code, said.lines) == (0, ("none x",))


def test_what_is_said_reaches_the_program_and_its_words_and_code_come_back() -> None:
    said = run_program(SHELL, ["-c", "cat; echo loud >&2; exit 3"], said="quit\n")
    assert (said.code, said.lines, said.words) == (3, ("quit", "loud"), "quit / loud")


def test_a_program_that_does_not_listen_is_no_failure() -> None:
    assert run_program(SHELL, ["-c", "exec 0<&-; echo done"], said="x\n" * 100).lines == ("done",)


def test_a_silent_program_is_known_by_its_code() -> None:
    assert run_program(SHELL, ["-c", "exit 9"]).words == "nothing, exit code 9"


def test_a_program_that_talks_without_end_is_cut_short_and_ends() -> None:
    said = run_program(SHELL, ["-c", "head -c 1000000 /dev/zero | tr '\\0' x"])
    assert (said.code, len(said.lines[0])) == (0, MOST_OUTPUT_BYTES)


@pytest.mark.parametrize(
    "script",
    [
        "tail -f /dev/null & echo $! >$PID; wait",
        "echo $$ >$PID; exec tail -f /dev/null >/dev/null 2>&1",  # nobody holds its output any longer
    ],
)
def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path, script: str) -> None:
    environment = {"PID": str(tmp_path / "pid")}
    with pytest.raises(ProgramHangs, match="sh did not end within 0 s"):
        run_program(SHELL, ["-c", script], environment=environment, timeout_seconds=0.4)
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert ended_within(pidfd, 30)
        os.close(pidfd)


def test_a_program_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeIncomplete, match="cannot be run: No such file"):
        run_program(Program(tmp_path / "none", {}), [])
