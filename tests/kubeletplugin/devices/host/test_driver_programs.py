"""Programs of the driver are run without a shell, with their libraries, and with bounds."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fakegpu.driver_files.driver_root import build_driver_files
from kubeletplugin.devices.host.driver_programs import MOST_OUTPUT_BYTES, MOST_STUCK, Program, run_program
from kubeletplugin.sharing.mps.processes import ended_within
from tests.gpus import FakeMachine, NodeIncomplete, build_driver_root
from tests.plugin import DriverPrograms, InstalledDriver, ProgramHangs
from tests.tracer import tracing

SHELL = Program(Path("/bin/sh"), {"PATH": "/usr/bin:/bin"})


def found_in(root: Path) -> Program:
    return DriverPrograms(InstalledDriver.below(root), root.with_name("libraries")).find("nvidia-smi")


def libraries_of(program: Program) -> dict[str, Path]:
    """The libraries that a program finds, by name, and where they really lie."""
    folders = program.environment["LD_LIBRARY_PATH"].split(":")
    return {path.name: path.resolve() for folder in reversed(folders) for path in Path(folder).iterdir()}


def test_a_program_finds_the_drivers_libraries_and_no_others_of_the_driver_root(tmp_path: Path) -> None:
    root = build_driver_root(tmp_path / "root", FakeMachine.open("a30-quad"))
    folder = root / "usr/lib/x86_64-linux-gnu"
    (folder / "libc.so.6").write_text("that of another system")
    program = found_in(root)

    assert program.path == root / "usr/bin/nvidia-smi"
    assert program.environment["PATH"].split(":")[0] == str(root / "usr/bin")
    libraries = libraries_of(program)
    assert libraries["libnvidia-ml.so.1"] == next(folder.glob("libnvidia-ml.so.*.*"))
    assert libraries["libcuda.so.1"] == next(folder.glob("libcuda.so.*.*"))
    assert "libc.so.6" not in libraries


def test_the_libraries_follow_the_driver_and_those_of_the_former_one_go(tmp_path: Path) -> None:
    machine = FakeMachine.open("a30-quad")
    root = build_driver_root(tmp_path / "root", machine)
    first, again = found_in(root), found_in(root)
    assert first == again
    machine.driver_gone()
    machine.driver_back("575.51.03")
    shutil.rmtree(root / "usr")
    build_driver_files(root, machine)
    after = libraries_of(found_in(root))

    assert after["libnvidia-ml.so.1"].name == "libnvidia-ml.so.575.51.03"
    assert len(list((tmp_path / "libraries").iterdir())) == 1


def test_a_library_of_32_bits_does_not_hide_that_of_64(tmp_path: Path) -> None:
    root = build_driver_root(tmp_path / "root", FakeMachine.open("a30-quad"))
    shutil.copytree(root / "usr/lib/x86_64-linux-gnu", root / "usr/lib64", symlinks=True)

    first, second = found_in(root).environment["LD_LIBRARY_PATH"].split(":")

    assert (Path(first) / "libcuda.so").resolve().parent == root / "usr/lib/x86_64-linux-gnu"
    assert (Path(second) / "libcuda.so").resolve().parent == root / "usr/lib64"


def test_a_program_gets_what_is_said_and_nothing_of_this_environment_and_its_words_and_code_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    said = run_program(SHELL, ["-c", "echo ${CUDA_VISIBLE_DEVICES:-none} $GIVEN"], environment={"GIVEN": "x"})
    assert (said.code, said.lines) == (0, ("none x",))
    assert run_program(SHELL, ["-c", "exec 0<&-; exit 9"], said="x\n" * 100).words == "no output, exit code 9"
    said = run_program(SHELL, ["-c", "cat; echo loud >&2; exit 3"], said="quit\n")
    assert (said.code, said.lines, said.words) == (3, ("quit", "loud"), "quit / loud")


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


@pytest.fixture
def tracer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with tracing(tmp_path / "pids") as started:
        yield started


@pytest.fixture
def unkillable(tmp_path: Path, tracer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Program:
    """A program that looks as one that waits within the kernel: its tracer keeps its parent from its end."""
    monkeypatch.setattr("kubeletplugin.devices.host.driver_programs.KILL_SECONDS", 0.05)
    assert tracer.poll() is None
    return Program(Path("/bin/sh"), {"PATH": "/usr/bin:/bin", "PIDS": str(tmp_path / "pids")})


STUCK = ["-c", "echo $$ >$PIDS; exec tail -f /dev/null"]


def test_no_more_programs_are_started_than_may_be_stuck_until_one_of_them_has_ended(
    unkillable: Program, tracer: subprocess.Popen[bytes]
) -> None:
    for _ in range(MOST_STUCK):
        with pytest.raises(ProgramHangs, match="cannot be killed"):
            run_program(unkillable, STUCK, timeout_seconds=1)

    with pytest.raises(ProgramHangs, match="4 programs wait for the NVIDIA driver"):
        run_program(SHELL, ["-c", "echo back"])
    tracer.kill()
    tracer.wait()
    assert run_program(SHELL, ["-c", "echo back"]).lines == ("back",)


def test_a_program_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(NodeIncomplete, match=r"cannot run .*: No such file"):
        run_program(Program(tmp_path / "none", {}), [])
