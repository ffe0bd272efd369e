"""What a test needs of a cluster, be it real Kubernetes or the embedded one."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from envtest.cdi import ContainerView
from envtest.client.api import ApiClient
from envtest.client.layout import ClusterLayout, NodeLayout

STOP_SECONDS = 20.0
"""How long a process may take to end, unless the caller says otherwise."""

_LOG_TAIL_LINES, _LOG_TAIL_COLUMNS = 15, 240
"""How much of a log an error shows."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A file or folder in a container: ``source`` ends with its path on the node."""

    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What a running container finds inside.

    ``device_nodes`` are the paths of the character devices in /dev, sorted, without those that every
    container has. ``env`` and ``mounts``, by their paths in the container, have at least what CDI put
    there: a real container has more of both.
    """

    device_nodes: tuple[str, ...]
    env: Mapping[str, str]
    mounts: Mapping[str, Mounted]


@dataclass(frozen=True, slots=True)
class PlayedContainer:
    """A container that runs no program: what CDI put into it, and its control group below the root."""

    view: ContainerView
    cgroup: str


Output = tuple[int, str]
"""Exit code and printed text."""


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A command that is run on this machine for a program of a container, with these variables added."""

    words: Sequence[str]
    environment: Mapping[str, str]


class PlayedPrograms(Protocol):
    """The programs and hooks that a driver brings into containers of a cluster which runs no programs.

    ``names`` tells users which programs are played. ``hooks`` are the programs of createRuntime hooks that
    are.
    """

    names: Sequence[str]
    hooks: Sequence[str]

    def is_server(self, program: str) -> bool:
        """Whether the program of this name only waits until its container ends."""

    def command(
        self, container: PlayedContainer, program: str, arguments: Sequence[str]
    ) -> HostCommand | Output | None:
        """What is run for a program, or what it prints; None for a program that cannot be played."""

    def hook(self, container: PlayedContainer, hook: Mapping[str, Any], state: Mapping[str, Any]) -> str:
        """Play a hook: returns what it writes when it fails, empty if it does not.

        ``state`` is the state of the container as the OCI specification has it.
        """


@dataclass(frozen=True, slots=True)
class Process(ABC):
    """A process of a cluster, by its name, which also names its log."""

    name: str

    @property
    @abstractmethod
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""

    @property
    @abstractmethod
    def host_pid(self) -> int:
        """Its process id as this machine sees it."""

    @property
    @abstractmethod
    def log(self) -> str:
        """All that it wrote to stdout and stderr since the cluster started, restarts included."""

    @abstractmethod
    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it ended already."""

    @abstractmethod
    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit status; raises ClusterError when it runs on."""

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Ask it to end (SIGTERM), wait for that, and return its exit status; raises ClusterError."""
        self.send(signal.SIGTERM)
        return self.wait(timeout_seconds)

    def kill(self) -> None:
        """Kill it (SIGKILL) and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait()


class ProcessLogs:
    """The logs of a cluster's processes, by the names of the processes."""

    def __init__(self, layout: ClusterLayout) -> None:
        self._layout = layout

    def names(self) -> list[str]:
        """The names of all processes that ever wrote a log, ended ones included."""
        return sorted(path.stem for path in self._layout.logs.glob("*.log"))

    def log(self, name: str) -> str:
        """What a process wrote so far; empty if it never started."""
        path = self._layout.log(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def log_tail(self, name: str) -> str:
        """The last lines that a process wrote, long ones cut."""
        lines = self.log(name).splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join(line[:_LOG_TAIL_COLUMNS] for line in lines)


class Processes(Protocol):
    """The processes beside a cluster, which end with it."""

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a process; ``environment`` is added to this one's own. Raises ClusterError."""

    def named(self, name: str) -> Process:
        """A process that was started before."""

    def names(self) -> list[str]:
        """The names of all processes that ever wrote a log, ended ones included."""

    def log_tail(self, name: str) -> str:
        """The last lines that a process wrote, long ones cut."""

    def check_running(self, name: str) -> None:
        """Return if a process runs; raises NotReady with the end of its log when it ended."""


class Cluster(Protocol):
    """A control plane and its nodes, node-0 first. Close it when it is not needed any more.

    Both kinds keep their files in ``folder``, and a driver finds the same folders and sockets in
    ``nodes``.
    """

    kubernetes: str
    folder: Path
    server: str
    api: ApiClient

    @property
    def runs_programs(self) -> bool:
        """Whether containers run programs; those of the embedded cluster only play what they print."""

    @property
    def nodes(self) -> Sequence[NodeLayout]:
        """The folders and sockets of the nodes."""

    @property
    def processes(self) -> Processes:
        """Where the driver's processes are started."""

    @property
    def admin(self) -> Path:
        """The administrator's kubeconfig."""

    def service_account_kubeconfig(self, namespace: str, service_account: str, node: str) -> Path:
        """A kubeconfig with the rights that a pod of a service account has on a node."""

    def play(self, programs: PlayedPrograms) -> None:
        """Have containers play these from now on; a cluster that runs programs ignores it."""

    def container(self, pod: str, namespace: str = "default", container: str | None = None) -> ContainerFacts:
        """What a running container (the first unless named) finds inside; raises ClusterError."""

    def kill_container(self, pod: str, namespace: str = "default", container: str | None = None) -> None:
        """End a running container (the first unless named) by SIGKILL; raises ClusterError.

        Whether it is started again is for the pod to say.
        """

    def restart_kubelet(self, node: int, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """End a kubelet and start it again; it deletes the ResourceSlices of its node at every start."""

    def stop_api_server(self) -> None:
        """Break all connections to the API server; nobody answers at its port any more."""

    def start_api_server(self) -> None:
        """Start the stopped API server at the same port with the same objects."""

    def close(self) -> None:
        """End all processes and remove the cluster's files; a closed cluster may be closed again."""
