"""Runs programs of the NVIDIA driver below its root, bounded in time and in what they may say.

A program that waits within the kernel for a GPU that hangs cannot be killed. Who asked for it is told so in
time, and the program is left to end when it can.
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
"""What is kept of a program's words; the rest is read and dropped, so that it can go on."""

_KILL_SECONDS = 2.0
"""How long a program that was killed may take to end."""

MOST_STUCK = 4
"""So many programs that cannot be killed may be there; until one of them has ended, none is started."""

_READ_BYTES = 64 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DIGITS = 16


class ProgramHangs(ClaimBlocked):
    """A program of the driver did not end in its time. It was killed, whether it has ended of that or not."""


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


class DriverPrograms:
    """The programs of the driver. ``links`` is a folder of ours alone, for links to its libraries."""

    def __init__(self, driver: InstalledDriver, links: Path) -> None:
        self._driver = driver
        self._links = links

    def find(self, name: str) -> Program:
        """The program of that name; raises NodeIncomplete when it is not installed, StorageError.

        Its libraries are found by LD_LIBRARY_PATH, where the root is not that of this process. Nothing else
        of this process's environment is passed on: CUDA variables in it would change what the program does.
        """
        installed = self._driver.now()
        files, root = installed.files(), installed.root
        path = next((path for path in files.binaries if PurePosixPath(path).name == name), None)
        full = None if path is None else root.at(files.below_root(path))
        if full is None:
            raise NodeIncomplete(
                f"the driver's program {name} is not below {root.seen}",
                "install the package of the driver that has it, or set --driver-root to where it is",
            )
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
) -> Said:
    """Run a program to its end, with ``said`` as its stdin and more ``environment`` beside its own.

    Raises NodeIncomplete when it cannot be run, ProgramHangs when it does not end in time: then it is
    killed, with all that it started. The call is over two seconds after its time at the latest, also where
    the program is stuck in the kernel and cannot be killed.
    """
    _STUCK.refuse_more()
    deadline = time.monotonic() + timeout_seconds
    try:
        process = subprocess.Popen(
            [program.path, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**program.environment, **(environment or {})}, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise cannot_be_run(program, error) from error
    try:
        code, output = _finish(process, said, deadline)
    except TimeoutError as error:
        raise _hangs(program, arguments, said, timeout_seconds, is_dead=_kill(process)) from error
    finally:
        if process.returncode is None:
            _kill(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
    lines = output.decode(errors="replace").splitlines()
    return Said(code, tuple(line.strip() for line in lines if line.strip()))


def cannot_be_run(program: Program, error: OSError) -> NodeIncomplete:
    """What to say about a program that is there and does not start."""
    return NodeIncomplete(
        f"{program.path} cannot be run: {error.strerror}",
        "see that it is an executable for this machine, and that its folder is not mounted noexec",
    )


def _hangs(
    program: Program, arguments: Sequence[str], said: str, timeout_seconds: float, *, is_dead: bool
) -> ProgramHangs:
    name, words = program.path.name, " ".join(arguments) or said.strip().replace("\n", "; ")
    what = f"{name} did not end within {timeout_seconds:.0f} s ({words})"
    if is_dead:
        return ProgramHangs(
            what, "it is tried again; look for what keeps it in the log of the NVIDIA driver (dmesg)"
        )
    return ProgramHangs(
        f"{what} and cannot be killed: it waits for the NVIDIA driver",
        "look for Xid messages in the kernel log (dmesg); the GPU needs a reset, or the node a restart",
    )


def _kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill a program with all that it started, before it is reaped; whether it has ended of that."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        _STUCK.add(process)
        return False
    return True


class _Stuck:
    """Programs that were killed and have not ended. They are reaped when they have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[int, subprocess.Popen[bytes]] = {}

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._programs[process.pid] = process

    def refuse_more(self) -> None:
        """Raise ProgramHangs while so many are stuck that another one would only join them."""
        with self._lock:
            self._programs = {pid: one for pid, one in self._programs.items() if one.poll() is None}
            count = len(self._programs)
        if count >= MOST_STUCK:
            raise ProgramHangs(
                f"{count} programs wait for the NVIDIA driver and cannot be killed: no other is started",
                "look for Xid messages in the kernel log (dmesg); the node may need a restart",
            )


_STUCK = _Stuck()


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


def _linked_libraries(root: Root, files: DriverFiles, links: Path) -> tuple[Path, ...]:
    """Folders with a link for each of the driver's libraries, to be searched in this order.

    A driver root is another system: beside the driver's libraries lies its C library, which does not fit the
    linker of this one. So programs are pointed to folders with nothing but links to the driver's own files.

    They lie below ``links``, which is ours alone, and are made where they are missing; those of a driver that
    was here before go. Libraries of different folders stay apart, since one of 32 bits may have the name of
    another. Raises StorageError.
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
            f"links to the driver's libraries cannot be made in {links}: {error.strerror}",
            "make the folder writable, or free space",
        ) from error
    return tuple(made / folder for folder in sorted(wanted))


def _wanted(root: Root, files: DriverFiles) -> dict[str, dict[str, str]]:
    """The folders, and in each the links with what they point to."""
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
    """The libraries' folders as the driver root is searched."""
    return list(dict.fromkeys(PurePosixPath(library).parent for library in files.libraries))


def _make(made: Path, wanted: dict[str, dict[str, str]]) -> None:
    """Make the folder whole or not at all: several processes may do so at once."""
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = made.with_name(f".tmp-{made.name}-{os.urandom(6).hex()}")
    try:
        for folder, links in wanted.items():
            (unfinished / folder).mkdir(mode=0o755, parents=True)
            for name, target in links.items():
                (unfinished / folder / name).symlink_to(target)
        unfinished.rename(made)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not made.is_dir():  # else another process was faster
            raise


def _drop_others(links: Path, made: Path) -> None:
    for other in links.iterdir():
        if other != made:
            shutil.rmtree(other, ignore_errors=True)
