"""Runs programs of the NVIDIA driver below its root, bounded in time and in what they may say."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked, NodeIncomplete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubeletplugin.host.driver_files import DriverRoot

TIMEOUT_SECONDS = 10.0
MOST_OUTPUT_BYTES = 64 * 1024
"""What is kept of a program's words; the rest is read and dropped, so that it can go on."""

_READ_BYTES = 64 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProgramHangs(ClaimBlocked):
    """A program of the driver did not end in its time, and was killed."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a program ended and what it said, stdout and stderr as they came, without empty lines."""

    code: int
    lines: tuple[str, ...]

    @property
    def words(self) -> str:
        """All of it on one line, for messages; the exit code where it said nothing."""
        return " / ".join(self.lines) or f"nothing, exit code {self.code}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the driver where it lies now, and the environment in which it finds its libraries."""

    path: Path
    environment: Mapping[str, str]


def find_program(root: DriverRoot, name: str) -> Program:
    """The program of that name below the driver root; raises NodeIncomplete when it is not installed.

    Its libraries are found by LD_LIBRARY_PATH, where the root is not that of this process. Nothing else of
    this process's environment is passed on: CUDA variables in it would change what the program does.
    """
    files = root.files()
    path = next((path for path in files.binaries if PurePosixPath(path).name == name), None)
    if path is None:
        raise NodeIncomplete(
            f"the driver's program {name} is not below {root.path}",
            "install the package of the driver that has it, or set --driver-root to the folder that has it",
        )
    full = root.path.absolute() / path.lstrip("/")
    environment = {"PATH": f"{full.parent}:{os.environ.get('PATH', _PATH)}", "LC_ALL": "C"}
    if root.path.absolute() != Path("/"):
        folders = (root.path.absolute() / folder.lstrip("/") for folder in files.library_folders)
        environment["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
    return Program(full, environment)


def run_program(
    program: Program,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    said: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Said:
    """Run a program to its end, with ``said`` as its stdin and more ``environment`` beside its own.

    Raises NodeIncomplete when it cannot be run, ProgramHangs when it does not end in time: then it is
    killed, with all that it started.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        process = subprocess.Popen(
            [program.path, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**program.environment, **(environment or {})}, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise cannot_be_run(program, error) from error
    with process:
        try:
            code, output = _finish(process, said, deadline)
        except TimeoutError as error:
            name, words = program.path.name, " ".join(arguments) or said.strip().replace("\n", "; ")
            raise ProgramHangs(
                f"{name} did not end within {timeout_seconds:.0f} s ({words})",
                "it is tried again; look for what keeps it in the log of the NVIDIA driver (dmesg)",
            ) from error
        finally:
            with suppress(ProcessLookupError):  # its process group, before it is reaped
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
    lines = output.decode(errors="replace").splitlines()
    return Said(code, tuple(line.strip() for line in lines if line.strip()))


def cannot_be_run(program: Program, error: OSError) -> NodeIncomplete:
    """What to say about a program that is there and does not start."""
    return NodeIncomplete(
        f"{program.path} cannot be run: {error.strerror}",
        "see that it is an executable for this machine, and that its folder is not mounted noexec",
    )


def _finish(process: subprocess.Popen[bytes], said: str, deadline: float) -> tuple[int, bytes]:
    """Exit code and output; raises TimeoutError."""
    assert process.stdin is not None  # noqa: S101 - it was asked for
    assert process.stdout is not None  # noqa: S101 - likewise
    with suppress(BrokenPipeError):  # it ended without listening
        process.stdin.write(said.encode())  # far less than a pipe holds, so that this does not wait
        process.stdin.close()
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            data = os.read(process.stdout.fileno(), _READ_BYTES)
            if not data:
                break
            output = (output + data)[:MOST_OUTPUT_BYTES]
    try:
        return process.wait(max(0.0, deadline - time.monotonic())), output
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
