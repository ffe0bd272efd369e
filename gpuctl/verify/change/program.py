"""A started program that prints one line, with what it wrote to stderr; it can be asked to end and killed."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from driver.errors import DriverError

_MOST_BYTES = 1 << 20
_TAIL_CHARACTERS = 1500
_GRACE_SECONDS = 5.0
_KILL_SECONDS = 10.0


class ContainerFailed(DriverError):
    """A container did not start, its program did not print its line, or it cannot be ended."""


class StartedProgram:
    """A process with pipes at stdin and stdout, in a session of its own: Ctrl-C does not reach it.

    ``errors`` is the file that gets its stderr. Raises ContainerFailed if it cannot be started.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], errors: Path) -> None:
        self._errors = errors
        self._received = b""
        try:
            with errors.open("wb") as file:
                self._process = subprocess.Popen(
                    words,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            raise ContainerFailed(
                f"cannot start {words[0]}: {error.strerror}", "look whether it is there and can be run"
            ) from error

    def line(self, seconds: float) -> bytes:
        """The first line of its stdout; raises ContainerFailed if there is none within this time."""
        assert self._process.stdout is not None  # noqa: S101 - Popen was given a pipe
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._failed(f"printed no line within {seconds:g} s")
                part = os.read(output, 65536)
                if not part:
                    raise self._failed(f"ended {self._how()} without a line")
                self._received += part
                if len(self._received) > _MOST_BYTES:
                    raise self._failed("prints a line that does not end")
        return self._received.partition(b"\n")[0]

    def ask_to_end(self) -> bool:
        """Close its stdin; returns whether it ended because of that, within five seconds."""
        # A client of MPS that is killed while it uses the GPU can take the other clients with it.
        assert self._process.stdin is not None  # noqa: S101 - Popen was given a pipe
        with suppress(OSError):
            self._process.stdin.close()
        return self._wait(_GRACE_SECONDS)

    def kill(self) -> None:
        """Kill it and all processes of its session; raises ContainerFailed if it does not end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if not self._wait(_KILL_SECONDS):
            raise ContainerFailed(
                f"process {self._process.pid} cannot be killed: it hangs in the kernel",
                "look for errors of the GPU with dmesg; such a process ends only with a reboot",
            )
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def _how(self) -> str:
        self._wait(_GRACE_SECONDS)
        code = self._process.returncode
        if code is None:
            return "its output"
        return f"with exit code {code}" if code >= 0 else f"by signal {-code}"

    def _failed(self, what: str) -> ContainerFailed:
        with suppress(OSError):
            said = self._errors.read_text(errors="replace").strip()[-_TAIL_CHARACTERS:]
            if said:
                return ContainerFailed(f"the program in the container {what}; it said: {said}")
        return ContainerFailed(f"the program in the container {what}, and said nothing on stderr")
