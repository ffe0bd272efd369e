"""Starts and stops processes next to a cluster, as children of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envtest.client.errors import ClusterError, NotReady
from envtest.client.layout import ClusterLayout
from envtest.cluster import STOP_SECONDS, Process, ProcessLogs

END_SECONDS = 10.0


class RunningProcess(Protocol):
    """A process that was started: the part of ``subprocess.Popen`` that is used here."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit status; raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""

    def terminate(self) -> None:
        """Send it SIGTERM."""

    def kill(self) -> None:
        """Send it SIGKILL."""


StartProcess = Callable[[Sequence[str], Mapping[str, str], int], RunningProcess]
"""Starts a command with an environment and a descriptor for its output. Raises OSError."""


def start_process(
    command: Sequence[str], environment: Mapping[str, str], output: int
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; raises OSError."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True)
class ChildProcess(Process):
    """See envtest.cluster.Process."""

    processes: ChildProcesses

    @property
    def returncode(self) -> int | None:
        """Its exit status, None while it runs."""
        return self.processes.popen(self.name).poll()

    @property
    def host_pid(self) -> int:
        """Its process id."""
        return self.processes.popen(self.name).pid

    @property
    def log(self) -> str:
        """All that it wrote."""
        return self.processes.log(self.name)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.processes.popen(self.name).send_signal(number)

    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait for its end."""
        try:
            return self.processes.popen(self.name).wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{self.name} still runs after {timeout_seconds:g} s") from error


class ChildProcesses(ProcessLogs):
    """See envtest.cluster.Processes. Thread-safe.

    Each is in a session of its own: Ctrl-C reaches only this process, which then ends the others in order.
    """

    def __init__(self, layout: ClusterLayout, start: StartProcess = start_process) -> None:
        super().__init__(layout)
        self._start = start
        self._lock = threading.Lock()
        self._started: dict[str, RunningProcess] = {}

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start a process; ``environment`` is added to this one's own."""
        with self._lock:
            known = self._started.get(name)
            if known is not None and known.poll() is None:
                raise ClusterError(f"{name} runs already, as process {known.pid}")
            # The child inherits a copy of the descriptor, so this one can be closed.
            with self._layout.log(name).open("ab") as log:
                try:
                    self._started[name] = self._start(
                        [str(argument) for argument in command],
                        {**os.environ, **(environment or {})},
                        log.fileno(),
                    )
                except OSError as error:
                    raise ClusterError(f"{name} cannot be started: {error}") from error
        return ChildProcess(name, self)

    def named(self, name: str) -> ChildProcess:
        """A process that was started before."""
        return ChildProcess(name, self)

    def check_running(self, name: str) -> None:
        """Return if a process runs."""
        returncode = self.popen(name).poll()
        if returncode is not None:
            raise NotReady(f"{name} ended with status {returncode}:\n{self.log_tail(name)}")

    def popen(self, name: str) -> RunningProcess:
        """The process itself. Raises ClusterError when none of this name was started."""
        with self._lock:
            found = self._started.get(name)
        if found is None:
            raise ClusterError(f"no process {name} was started")
        return found

    def shutdown(self) -> None:
        """End all, the last started first: by SIGTERM, and by SIGKILL after some time."""
        with self._lock:
            # From here on nobody finds them by name, so none is ended twice.
            running, self._started = list(self._started.values()), {}
        for process in reversed(running):
            process.terminate()
        for process in reversed(running):
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
