"""Containers of the embedded runtime: each is started once, and a restart makes another container.

As with containerd, a restarted container has another id and another control group.
"""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass, field

from envtest.cdi import ContainerView
from envtest.embedded.api.container_log import ContainerLog

# 128 and the number of the signal.
KILLED = 137
"""The exit code of a process that SIGKILL ended."""

NOT_STARTED = 128
"""The exit code that containerd gives to a container that it could not start."""


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """What the runtime knows of a pod."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How and when a container ended, by time.monotonic and as the API writes it."""

    exit_code: int
    reason: str
    finished_at: str
    moment: float
    message: str = ""


@dataclass(eq=False, slots=True)
class Container:
    """One container from its start on.

    ``attempt`` counts the containers of this name in its pod from 0. ``cgroup`` is its path below the root of
    the control groups. ``log`` is what it prints. ``end`` is None while it runs. ``processes`` are those of
    its programs that run; they are killed with it. ``unplayed`` says that its command cannot be played, until
    the kubelet has posted an event about it. It counts as running once it has ``begun``: whoever waits for
    that finds in the log what the command prints first.
    """

    id: str
    name: str
    attempt: int
    view: ContainerView
    cgroup: str
    started_at: str
    log: ContainerLog
    end: ContainerEnd | None = None
    unplayed: bool = False
    begun: bool = True
    ended: threading.Event = field(default_factory=threading.Event)
    processes: set[subprocess.Popen[str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Runs:
    """The last container of a name in a pod, and the one before it, which ``lastState`` shows."""

    last: Container
    before: Container | None = None


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that the runtime has, with the containers that were started, by name."""

    sandbox: PodSandbox
    runs: dict[str, Runs] = field(default_factory=dict)

    def last(self, name: str) -> Container | None:
        """The last container of that name, running or ended."""
        found = self.runs.get(name)
        return None if found is None else found.last


class StartFailed(Exception):
    """A container was made and did not start; the message is in the words of containerd and runc."""
