"""Clears up after a demo, even one that SIGKILL ended: a process that outlives the demo.

This file runs as a program of its own. It makes the folder of the cluster, writes its name, and waits for the
end of the demo. Then it kills the processes that belong to the folder and removes it.
"""

# Only the standard library, so that the program starts at once.
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
"""A variable in the environment of all processes that the demo starts, with the name of the folder or of one
below it."""

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
"""A daemon of MPS has this variable instead: it does not inherit the environment of the demo."""

# On a machine that is busy, a killed process may take long to end.
_CLEARING_SECONDS = 60.0


@contextlib.contextmanager
def watched_folder(prefix: str) -> Iterator[Path]:
    """A new folder for a cluster; it is removed at the end of the block, or of this process.

    Raises OSError if no folder can be made. For the main thread alone: it changes the environment.
    """
    # In a session of its own, so that Ctrl-C and the end of the terminal do not end it with the demo.
    with subprocess.Popen(
        [sys.executable, "-I", __file__, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        lifeline, output, errors = (
            cast("IO[str]", one) for one in (process.stdin, process.stdout, process.stderr)
        )
        name = output.readline().rstrip("\n")
        if not name:
            raise OSError(errors.read().strip() or "the folder of the demo cannot be made")
        os.environ[MARK] = name
        try:
            yield Path(name)
        finally:
            os.environ.pop(MARK, None)
            lifeline.close()


def main(prefix: str) -> int:
    """Make the folder, wait for the end of the process that started this one, and clear up."""
    try:
        folder = tempfile.mkdtemp(prefix=prefix)
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 1
    try:
        sys.stdout.write(f"{folder}\n")
        sys.stdout.flush()
        # The other end of the pipe is closed by the block, or by the kernel when the demo's process ends.
        # Other processes that the demo starts do not have it: Python's descriptors are not inherited.
        sys.stdin.read()
    finally:
        clear(folder)
    return 0


def clear(folder: str) -> None:
    """Kill the processes that belong to the folder until there are none, and remove it."""
    deadline = time.monotonic() + _CLEARING_SECONDS
    # Again and again: a process may start another one while this one is looked for.
    while time.monotonic() < deadline:
        running = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        found = [pid for pid in running if belongs(pid, folder)]
        for pid in found:
            _kill(pid, folder, deadline)
        shutil.rmtree(folder, ignore_errors=True)
        if not found and not Path(folder).exists():
            return


def belongs(pid: int, folder: str) -> bool:
    """Whether a process was started for the cluster in this folder."""
    try:
        # The environment that the process was started with, as the kernel keeps it.
        variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended meanwhile, or is another user's
    below = tuple(f"{name}={folder}/".encode() for name in (MARK, _PIPES))
    return f"{MARK}={folder}".encode() in variables or any(one.startswith(below) for one in variables)


def _kill(pid: int, folder: str, deadline: float) -> None:
    """Kill a process and wait for its end."""
    # Another process may have its id by now. A pidfd stays with one process, which is therefore looked at
    # once more after it is opened. It becomes readable when the process ends.
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
