"""Leaves nothing of a demo behind, also where SIGKILL ends it: a process that outlives it clears up.

It runs as a program of its own, this file, and imports the standard library alone, so that it is there at
once. It makes the folder of the cluster, writes its name, and waits until its stdin is closed, which the
kernel does for a demo that ends, however that ends. Then it kills the processes that belong to the folder
and removes it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

MARK = "GPUCTL_DEMO_FOLDER"
"""A variable in the environment of all processes that the demo starts; no shell of a user has it."""

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""How a daemon of MPS is recognised instead: its environment is not inherited."""

_CLEARING_SECONDS = 10.0


@contextlib.contextmanager
def watched_folder(prefix: str) -> Iterator[Path]:
    """A new folder for a cluster; at the end of the block, or of this process, nothing of it is left.

    Raises OSError when no folder can be made. For the main thread: it marks the environment.
    """
    with subprocess.Popen(
        [sys.executable, "-I", __file__, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        lifeline, told, failure = (
            cast("IO[str]", one) for one in (process.stdin, process.stdout, process.stderr)
        )
        name = told.readline().rstrip("\n")
        if not name:
            raise OSError(failure.read().strip() or "the folder of the demo cannot be made")
        os.environ[MARK] = name
        try:
            yield Path(name)
        finally:
            os.environ.pop(MARK, None)
            lifeline.close()


def main(prefix: str) -> int:
    """Make the folder, wait for the end of whoever started this, and clear up."""
    try:
        folder = tempfile.mkdtemp(prefix=prefix)
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 1
    try:
        sys.stdout.write(f"{folder}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        clear(folder)
    return 0


def clear(folder: str) -> None:
    """Kill what belongs to the folder until nothing does, and remove it."""
    deadline = time.monotonic() + _CLEARING_SECONDS
    while time.monotonic() < deadline:
        running = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        found = [pid for pid in running if belongs(pid, folder)]
        for pid in found:
            _kill(pid, folder, deadline)
        shutil.rmtree(folder, ignore_errors=True)
        if not found and not Path(folder).exists():
            return


def belongs(pid: int, folder: str) -> bool:
    """Whether a process was started for the cluster in a folder, by its environment."""
    try:
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended meanwhile, or is another user's
    below = f"{_PIPES}={folder}/".encode()
    return f"{MARK}={folder}".encode() in variables or any(one.startswith(below) for one in variables)


def _kill(pid: int, folder: str, deadline: float) -> None:
    """Kill a process and wait for its end; its id may be another's by now."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if belongs(pid, folder):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(handle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
