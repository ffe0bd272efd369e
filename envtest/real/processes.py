"""Starts and stops processes of a cluster by asking its supervisor, from any process of the machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envtest.client.errors import ClusterError, NotReady
from envtest.client.layout import ClusterLayout
from envtest.client.shipped import PACKAGE_ROOT
from envtest.cluster import STOP_SECONDS, Process, ProcessLogs
from envtest.real.slots import Slot
from envtest.real.supervisor import READY_LINE

SHUTDOWN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClusterProcess(Process):
    """See envtest.cluster.Process."""

    processes: Processes

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self.processes.returncode(self.name)

    @property
    def host_pid(self) -> int:
        """Its process id as this machine sees it, outside of the cluster's namespace.

        Raises:
            ClusterError: it ended.
        """
        return self.processes.host_pid(self.name)

    @property
    def log(self) -> str:
        """All that it wrote to stdout and stderr since the cluster started, restarts included."""
        return self.processes.log(self.name)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it ended already."""
        self.processes.ask("signal", name=self.name, signal=int(number))

    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit status.

        Raises:
            ClusterError: it still runs after that time.
        """
        answer = self.processes.ask("wait", name=self.name, timeout_seconds=timeout_seconds)
        if answer["returncode"] is None:
            raise ClusterError(f"{self.name} still runs after {timeout_seconds:g} s")
        return int(answer["returncode"])


class Processes(ProcessLogs):
    """All processes of one cluster, which share its PID and mount namespace and end with it."""

    def __init__(self, layout: ClusterLayout, unshare: subprocess.Popen[bytes]) -> None:
        super().__init__(layout)
        self._unshare = unshare

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> ClusterProcess:
        """Start a process; ``environment`` is added to this cluster's own.

        Raises:
            ClusterError: the program cannot be executed, or a process of this name runs.
        """
        arguments = [str(argument) for argument in command]
        self.ask("start", name=name, command=arguments, environment=dict(environment or {}))
        return ClusterProcess(name, self)

    def named(self, name: str) -> ClusterProcess:
        """A process that was started before."""
        return ClusterProcess(name, self)

    def returncode(self, name: str) -> int | None:
        """The exit status of a process, None while it runs."""
        state = self.ask("states")["processes"][name]
        return None if state["returncode"] is None else int(state["returncode"])

    def check_running(self, name: str) -> None:
        """Return if a process runs.

        Raises:
            NotReady: it ended; the message has the end of its log.
        """
        returncode = self.returncode(name)
        if returncode is not None:
            raise NotReady(f"{name} ended with status {returncode}:\n{self.log_tail(name)}")

    def cluster_pid(self, name: str) -> int:
        """The process id of a process as the cluster's PID namespace has it."""
        return int(self.ask("states")["processes"][name]["pid"])

    def host_pid(self, name: str) -> int:
        """The process id of a running process as this machine has it."""
        states = self.ask("states")
        pid = states["processes"][name]["pid"]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _is_known_as(entry, pid, states["namespace"]):
                return int(entry.name)
        raise ClusterError(f"{name} (process {pid} of its namespace) is gone")

    def shutdown(self) -> None:
        """End all processes and remove what the cluster left.

        Raises:
            ClusterError: something could not be removed.
        """
        try:
            self.ask("shutdown", timeout_seconds=SHUTDOWN_SECONDS)
        finally:
            self._unshare.wait(SHUTDOWN_SECONDS)

    def ask(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send a request to the supervisor and return its answer.

        Raises:
            ClusterError: it was refused, or the supervisor is gone, and the cluster with it.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(request.get("timeout_seconds", 0) + STOP_SECONDS)
            try:
                connection.connect(str(self._layout.supervisor_socket))
                connection.sendall(json.dumps({"op": operation, **request}).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    line = lines.readline()
            except OSError as error:
                raise ClusterError(
                    f"the supervisor of the cluster in {self._layout.folder} does not answer "
                    f"({error}): the cluster is gone"
                ) from error
        answer: dict[str, Any] = json.loads(line or b'{"error": "the supervisor ended"}')
        if "error" in answer:
            raise ClusterError(str(answer["error"]))
        return answer


def launch(layout: ClusterLayout, slot: Slot, slot_lock: int, binaries: Path) -> Processes:
    """Start the supervisor of a cluster, which ends with this process, in namespaces of its own.

    Args:
        layout: the cluster's existing folder.
        slot: what the cluster may use.
        slot_lock: the descriptor with the slot's lock, which the supervisor then holds too.
        binaries: goes first on the PATH of all processes.

    Raises:
        NotReady: the supervisor did not come up; the message has what it wrote.
    """
    layout.logs.mkdir(exist_ok=True)
    # A pidfd becomes readable when its process ends, however it ends, and is never another process's.
    owner = os.pidfd_open(os.getpid())
    arguments = ["--folder", str(layout.folder), "--slot", str(slot.index)]
    arguments += ["--slot-lock", str(slot_lock), "--owner", str(owner)]
    # --fork: the child is the first process of the new PID namespace. --kill-child: it ends with unshare.
    # --mount-proc: its /proc shows that namespace.
    namespaces = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    python = [sys.executable, "-m", "envtest.real.supervisor"]
    path = f"{binaries}:{os.environ.get('PATH', os.defpath)}"
    python_path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    try:
        with layout.log("supervisor").open("wb") as log:
            unshare = subprocess.Popen(
                # slave: mounts of the machine still arrive in the cluster, none of the cluster gets out.
                ["unshare", *namespaces, "--propagation", "slave", *python, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PATH": path, "PYTHONPATH": python_path},
                pass_fds=[slot_lock, owner],
                # A signal from the terminal reaches this process only, which then ends the cluster in order.
                start_new_session=True,
            )
    finally:
        os.close(owner)
    assert unshare.stdout is not None
    with unshare.stdout as output:
        first_line = output.readline()
    # An empty line: the supervisor ended, and with it the pipe.
    if first_line != READY_LINE:
        unshare.wait()
        wrote = layout.log("supervisor").read_text(errors="replace")
        raise NotReady(f"the supervisor of the cluster in {layout.folder} ended:\n{wrote}")
    return Processes(layout, unshare)


def _is_known_as(entry: Path, pid: int, namespace: str) -> bool:
    """Whether a process of this machine has the given id inside the given PID namespace."""
    try:
        # May fail: the process has ended meanwhile, or not even root may look at it.
        if str((entry / "ns" / "pid").readlink()) != namespace:
            return False
        status = (entry / "status").read_text()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False
    # NSpid has the ids of a process from the outermost to the innermost PID namespace.
    known_as = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return int(known_as.split()[-1]) == pid
