"""Starts the driver's processes for the demo, each with a log file, and ends them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from driver.errors import DriverError

PROJECT = Path(__file__).resolve().parents[1]
"""The folder that has the packages, and deviceclasses/ beside them."""

STOP_SECONDS = 10.0
TAIL_LINES = 12
TAIL_COLUMNS = 240


class ProcessEnded(DriverError):
    """A process of the driver ended while it was needed."""

    retryable = False


class DriverProcesses:
    """Python modules that run as processes of their own; their stderr is kept below ``logs``."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, module: str, arguments: Sequence[str]) -> None:
        """Start ``python -m module`` from our packages, whatever lies in the working folder (-P).

        It is in a session of its own: Ctrl-C reaches only this process, which then ends the others in order.
        """
        # The flags say all; a variable of the user's own driver must not change the demo.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DRA_")}
        paths = (str(PROJECT), environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with self._log(module).open("wb") as log:
            self._running[module] = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raises ProcessEnded when one of the processes does not run any more."""
        for module, process in self._running.items():
            if process.poll() is not None:
                raise ProcessEnded(
                    f"python -m {module} ended with status {process.returncode}", "look at its log"
                )

    def stop(self) -> None:
        """End all, the last started first: SIGTERM, and SIGKILL for what does not end in time."""
        while self._running:
            _, process = self._running.popitem()
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tails(self) -> dict[str, str]:
        """The last lines of each log, by module, long ones cut."""
        return {path.stem: _tail(path) for path in sorted(self._logs.glob("*.log"))}

    def _log(self, module: str) -> Path:
        return self._logs / f"{module}.log"


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(line[:TAIL_COLUMNS] for line in lines)
