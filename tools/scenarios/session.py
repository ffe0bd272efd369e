"""One bash session for the blocks of a page: variables and the working folder last for the next block."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, cast

_PROGRAM = Path(__file__).with_name("session.sh")
_READ_BYTES = 4096


class SessionOver(Exception):
    """A former block failed, which ended the session."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a block ended: its exit code, None if it took too long; what it printed; how long it took.

    ``failed_at`` is the line of the block, counted from 1, whose command failed; None if unknown.
    """

    exits: int | None
    printed: str
    seconds: float
    failed_at: int | None = None


class Session:
    """A bash with ``set -euo pipefail``; a context manager that ends all processes of the session.

    stdin of the blocks is empty; stdout and stderr together are what they print.
    """

    def __init__(self, folder: Path, directory: Path, environment: Mapping[str, str]) -> None:
        """``folder`` is for the blocks and their output; ``directory`` is where the first block runs."""
        self._folder = folder
        self._count = 0
        self._failed_at = folder / "failed-at"
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", str(_PROGRAM), str(self._failed_at)],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # That of the program itself: what blocks write to stderr goes to their output.
            stderr=subprocess.DEVNULL,
            # Unbuffered, because select does not see what a buffer of this process holds.
            bufsize=0,
            # A process group of its own, to end everything that the blocks started.
            start_new_session=True,
        )
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._ended = os.pidfd_open(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        os.close(self._ended)

    def run(self, script: str, timeout_seconds: float, *, apart: bool = False) -> Ran:
        """Run a block. One that fails ends the session, unless it runs ``apart``, in a subshell.

        Variables that a block sets apart do not last for the next one. Raises SessionOver.
        """
        self._count += 1
        block, output = (self._folder / f"{self._count}.{ending}" for ending in ("sh", "out"))
        block.write_text(script)
        output.touch()
        self._failed_at.unlink(missing_ok=True)
        begun = time.monotonic()
        try:
            self._requests.write(f"{'apart' if apart else 'here'} {block} {output}\n".encode())
        except (BrokenPipeError, ValueError) as error:
            raise SessionOver("the session has ended") from error
        exits = self._answer(begun + timeout_seconds)
        seconds = time.monotonic() - begun
        line = self._failed_line() if exits else None
        return Ran(exits, output.read_text(errors="replace"), seconds, line)

    def _answer(self, deadline: float) -> int | None:
        """The exit code of the running block; None if it was ended at the deadline."""
        answer = b""
        while not answer.endswith(b"\n"):
            left_seconds = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._answers.fileno(), self._ended], [], [], left_seconds)
            if self._answers.fileno() in ready and (data := self._answers.read(_READ_BYTES)):
                answer += data
            elif ready:
                # The pidfd says that bash has ended. The end of the pipe may never come: a process that the
                # block left behind may still have it open.
                self._end()
                return self._process.returncode
            else:
                self._end()
                return None
        return int(answer)

    def _failed_line(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(self._failed_at.read_text())
        return None

    def _end(self) -> None:
        """End the session, and all processes that its blocks left running."""
        # It has ended before, and its process id may belong to another process by now.
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._requests.close()
        self._answers.close()
