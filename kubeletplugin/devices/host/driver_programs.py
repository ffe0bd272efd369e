"""Runs programs of the NVIDIA driver below its root, with a limit on their time and their output.

A program that waits in the kernel for a GPU that hangs cannot be killed. The caller gets an error in time,
and the program is left to end when it can.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from driver.errors import ClaimBlocked, NodeIncomplete, StorageError
from driver.roots.root import Root
from kubeletplugin.devices.host.driver_files import DriverFiles, InstalledDriver

TIMEOUT_SECONDS = 10.0
MOST_OUTPUT_BYTES = 64 * 1024
"""How much of a program's output is kept, unless the caller needs more."""

KILL_SECONDS = 2.0
"""How long to wait for a killed program to end."""

MOST_STUCK = 4
"""At most this many killed programs may still be running; until one of them has ended, none is started."""

_READ_BYTES = 64 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DIGITS = 16


class ProgramHangs(ClaimBlocked):
    """A program of the driver did not end in time. It was killed, but it may be stuck in the kernel."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a program ended and what it printed, stdout and stderr in order, without empty lines."""

    code: int
    lines: tuple[str, ...]

    @property
    def words(self) -> str:
        """The output on one line, for messages; the exit code if there was none."""
        return " / ".join(self.lines) or f"no output, exit code {self.code}"


@dataclass(frozen=True, slots=True)
class Program:
    """The path of a program of the driver, and the environment in which it finds its libraries."""

    path: Path
    environment: Mapping[str, str]


class DriverPrograms:
    """The programs of the driver. ``links`` is a folder that nobody else uses, for links to its libraries."""

    def __init__(self, driver: InstalledDriver, links: Path) -> None:
        self._driver = driver
        self._links = links

    def find(self, name: str) -> Program:
        """The program of that name; raises NodeIncomplete if it is not installed, StorageError.

        If the driver's root is not that of this process, LD_LIBRARY_PATH leads to its libraries.
        """
        installed = self._driver.now()
        files, root = installed.files(), installed.root
        path = next((path for path in files.binaries if PurePosixPath(path).name == name), None)
        full = None if path is None else root.at(files.below_root(path))
        if full is None:
            raise NodeIncomplete(
                f"the driver's program {name} is missing below {root.seen}",
                "install the driver package that contains it, or set --driver-root to where it is",
            )
        # The rest of this process's environment is not passed on: CUDA variables would change what the
        # program does. LC_ALL=C keeps its messages in the English that is parsed.
        environment = {"PATH": f"{full.parent}:{os.environ.get('PATH', _PATH)}", "LC_ALL": "C"}
        if root.seen != Path("/"):
            folders = _linked_libraries(root, files, self._links)
            environment["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
        return Program(full, environment)


def run_program(
    program: Program,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    said: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
    most_output_bytes: int = MOST_OUTPUT_BYTES,
) -> Said:
    """Run a program to its end, with ``said`` as its stdin and ``environment`` added to its own.

    The rest of its output is dropped, since a full pipe would stop it.

    Raises NodeIncomplete if it cannot be run, and ProgramHangs if it does not end in time. It is then killed
    with everything that it started. The call returns two seconds after its timeout at the latest, even if the
    program is stuck in the kernel and cannot be killed.
    """
    _STUCK.refuse_more()
    deadline = time.monotonic() + timeout_seconds
    try:
        # A session of its own makes the program the leader of a process group, which _kill ends as a whole.
        process = subprocess.Popen(
            [program.path, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**program.environment, **(environment or {})}, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise cannot_be_run(program, error) from error
    try:
        code, output = _finish(process, said, deadline, most_output_bytes)
    except TimeoutError as error:
        raise _hangs(program, arguments, said, timeout_seconds, is_dead=_kill(process)) from error
    finally:
        if process.returncode is None:
            _kill(process)
        for pipe in (process.stdin, process.stdout):
            # Closing stdin flushes what is left of it, which fails if the program has ended.
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
    lines = output.decode(errors="replace").splitlines()
    return Said(code, tuple(line.strip() for line in lines if line.strip()))


def cannot_be_run(program: Program, error: OSError) -> NodeIncomplete:
    """The error for a program that exists but does not start."""
    return NodeIncomplete(
        f"cannot run {program.path}: {error.strerror}",
        "check that it is an executable for this machine, and that its folder is not mounted noexec",
    )


def _hangs(
    program: Program, arguments: Sequence[str], said: str, timeout_seconds: float, *, is_dead: bool
) -> ProgramHangs:
    name, words = program.path.name, " ".join(arguments) or said.strip().replace("\n", "; ")
    what = f"{name} did not end within {timeout_seconds:.0f} s ({words})"
    if is_dead:
        return ProgramHangs(
            what, "it is tried again; look for messages of the NVIDIA driver in the kernel log (dmesg)"
        )
    return ProgramHangs(
        f"{what} and cannot be killed, since it waits for the NVIDIA driver",
        "look for Xid messages in the kernel log (dmesg); the GPU needs a reset, or the node a restart",
    )


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill a program with everything that it started; returns whether it has ended."""
    # The program is not reaped yet, so no other process can have got its id.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        _STUCK.add(process)
        return False
    return True


class _Stuck:
    """Programs that were killed and have not ended yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[int, subprocess.Popen[bytes]] = {}

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._programs[process.pid] = process

    def refuse_more(self) -> None:
        """Raise ProgramHangs while too many are stuck: another one would only join them."""
        with self._lock:
            # poll() also reaps those that have ended meanwhile.
            self._programs = {pid: one for pid, one in self._programs.items() if one.poll() is None}
            count = len(self._programs)
        if count >= MOST_STUCK:
            raise ProgramHangs(
                f"{count} programs wait for the NVIDIA driver and cannot be killed, so no other is started",
                "look for Xid messages in the kernel log (dmesg); the node may need a restart",
            )


_STUCK = _Stuck()


def _finish(
    process: subprocess.Popen[bytes], said: str, deadline: float, most_output_bytes: int
) -> tuple[int, bytes]:
    """Exit code and output; raises TimeoutError."""
    assert process.stdin is not None  # noqa: S101 - it was asked for
    assert process.stdout is not None  # noqa: S101 - likewise
    # The input is far shorter than a pipe holds, so writing does not block. A program may end without
    # reading it.
    with suppress(BrokenPipeError):
        process.stdin.write(said.encode())
        process.stdin.close()
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            # os.read returns what is there; a read of the file object would wait for more.
            data = os.read(process.stdout.fileno(), _READ_BYTES)
            if not data:
                break
            output += data[: most_output_bytes - len(output)]
    try:
        # A program may close its output before it ends.
        return process.wait(max(0.0, deadline - time.monotonic())), bytes(output)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error


def _linked_libraries(root: Root, files: DriverFiles, links: Path) -> tuple[Path, ...]:
    """Folders with a link to each of the driver's libraries, in the order of the search. Raises StorageError.

    A driver root is another system: its folders also hold its C library, which does not fit the dynamic
    linker of this process. So programs get folders that have nothing but links to the driver's own files.

    They lie below ``links`` and are made if they are missing; those of an earlier driver are removed. Each
    library folder stays a folder of its own, since a library of 32 bits may have the name of another one.
    """
    wanted = _wanted(root, files)
    name = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:_DIGITS]
    made = links / name
    try:
        if not made.is_dir():
            _make(made, wanted)
            _drop_others(links, made)
    except OSError as error:
        raise StorageError(
            f"cannot make links to the driver's libraries in {links}: {error.strerror}",
            "make the folder writable, or free space on its disk",
        ) from error
    return tuple(made / folder for folder in sorted(wanted))


def _wanted(root: Root, files: DriverFiles) -> dict[str, dict[str, str]]:
    """The folders, and in each the links with their targets."""
    folders = {str(folder): f"{number:02}" for number, folder in enumerate(_in_order(files))}
    wanted: dict[str, dict[str, str]] = {number: {} for number in folders.values()}
    for library in map(PurePosixPath, files.libraries):
        real = root.at(files.below_root(str(library)))
        wanted[folders[str(library.parent)]][library.name] = str(real or f"{root.seen}{library}")
    for link in files.links:
        path = PurePosixPath(link.path)
        if str(path.parent) in folders:  # others are of no use to the linker
            wanted[folders[str(path.parent)]][path.name] = link.target
    return wanted


def _in_order(files: DriverFiles) -> list[PurePosixPath]:
    """The folders of the libraries, in the order in which the driver root is searched."""
    return list(dict.fromkeys(PurePosixPath(library).parent for library in files.libraries))


def _make(made: Path, wanted: dict[str, dict[str, str]]) -> None:
    """Make the folder whole or not at all; several processes may do so at once."""
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = made.with_name(f".tmp-{made.name}-{os.urandom(6).hex()}")
    try:
        for folder, links in wanted.items():
            (unfinished / folder).mkdir(mode=0o755, parents=True)
            for name, target in links.items():
                (unfinished / folder / name).symlink_to(target)
        # The kernel refuses to rename a folder over one that has entries: the first process wins.
        unfinished.rename(made)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not made.is_dir():  # else another process was faster
            raise


def _drop_others(links: Path, made: Path) -> None:
    for other in links.iterdir():
        if other != made:
            shutil.rmtree(other, ignore_errors=True)
