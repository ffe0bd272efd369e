"""The controller and the plugin as processes; what they write to stderr is waited for line by line."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Self

from tests.clusters import PACKAGE_ROOT, Object, python_command, python_environment
from tests.eventually import WAIT_SECONDS, eventually
from tests.fork_server import ForkedProcess, start_read

Started = subprocess.Popen[str] | ForkedProcess
Line = Object

TOKEN = "swordfish-0123456789-swordfish"  # noqa: S105 - it opens nothing, the tests look for it
"""The secret of every kubeconfig here: no process may ever write it."""


class DriverProcess:
    """One process of the driver; everything that it wrote is kept, and judged when the block ends.

    What is judged: no secret, no traceback, and every line is a JSON object as long as it ran well.
    The packages of this checkout run, unless PYTHONPATH is given.
    """

    def __init__(self, module: str, *arguments: str, **environment: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DRA_")}
        command = python_command("-m", module, *arguments)
        self._process = self._start(command, {**inherited, **python_environment(PACKAGE_ROOT), **environment})

        self._lines: list[str] = []
        self._closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def _start(command: Sequence[str], environment: Mapping[str, str]) -> Started:
        return start_read(command, environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.exit_code()
        assert TOKEN not in self.text
        assert "Traceback" not in self.text

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def text(self) -> str:
        """All that was written so far."""
        return "\n".join(self._lines)

    def exit_code(self, timeout_seconds: float = WAIT_SECONDS) -> int:
        """Wait for the end; the exit code, negative for a signal."""
        code = self._process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        return code

    def terminate(self) -> None:
        """Send SIGTERM, as the kubelet does when the pod has to end."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Send SIGTERM and wait for the end; the exit code."""
        self.terminate()
        return self.exit_code()

    def lines(self) -> list[Line]:
        """What was logged so far; raises ValueError for a line that is not JSON."""
        return [json.loads(line) for line in self.text.splitlines()]

    def logged(self, event: str, **fields: object) -> list[Line]:
        """The lines of this event that have these fields."""
        return [
            line
            for line in self.lines()
            if line["event"] == event and all(line.get(key) == value for key, value in fields.items())
        ]

    def wait_for(self, event: str, **fields: object) -> Line:
        """Wait until this was logged; the first such line."""
        return self.wait_logged(1, event, **fields)[0]

    def wait_logged(self, times: int, event: str, **fields: object) -> list[Line]:
        """Wait until this was logged so many times; the lines. Fails when the process ends before."""

        def look() -> list[Line]:
            ended = self._closed
            found = self.logged(event, **fields)
            assert not ended or len(found) >= times, f"it ended before {event!r}:\n{self.text}"
            return found

        what = f"{event!r} {fields or ''}"
        return eventually(what, look, lambda found: len(found) >= times, context=lambda: self.text)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.append(line.rstrip("\n"))
        self._closed = True


class FreshProcess(DriverProcess):
    """A process that is started as users start it: an interpreter of its own imports what it needs."""

    @staticmethod
    def _start(command: Sequence[str], environment: Mapping[str, str]) -> Started:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def failed(module: str, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code and, without the log, the lines that a process wrote which ends by itself."""
    with DriverProcess(module, *arguments, **environment) as process:
        code = process.exit_code()
    return code, [line for line in process.text.splitlines() if not line.startswith("{")]
