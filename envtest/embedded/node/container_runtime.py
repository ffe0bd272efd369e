"""Stands for the container runtime of a node: which containers run, what CDI put into each, what they print.

Containers run from their start on until their pod ends, whatever becomes of their command; they end at once
when they are told to. Of their commands only what they print is played (see played_commands). A
restart of the kubelet does not touch them.
"""

from __future__ import annotations

import subprocess
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from envtest.embedded.api import unforeseen
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.control.objects import now
from envtest.embedded.node.cdi import ContainerView, resolve
from envtest.embedded.node.played_commands import NOT_FOUND, PATH, Command, Output, play

if TYPE_CHECKING:
    from pathlib import Path

VISIBLE_NODES = "FAKEGPU_VISIBLE_NODES"
"""The variable in which the fake nvidia-smi reads which device nodes its container has."""

_BROUGHT = ("nvidia-smi",)
"""The programs that CDI brings and that are run: they look, and the fake ones end."""

_KEPT_LOGS = 500
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningPod:
    """The containers of a pod by name, and when they started, as the API writes it.

    ``processes`` are those of its programs that run; they are killed with it.
    """

    containers: Mapping[str, ContainerView]
    started_at: str
    ended: threading.Event = field(default_factory=threading.Event)
    processes: set[subprocess.Popen[str]] = field(default_factory=set)


class ContainerRuntime:
    """The pods that run on one node, by UID. Thread-safe.

    ``changed`` is notified when a container has printed something.
    """

    def __init__(self, cdi_dir: Path, changed: threading.Condition | None = None) -> None:
        self._cdi_dir = cdi_dir
        self._changed = changed or threading.Condition()
        self._lock = threading.Lock()
        self._pods: dict[str, RunningPod] = {}
        self._logs: OrderedDict[tuple[str, str], ContainerLog] = OrderedDict()
        self._players: list[threading.Thread] = []

    @property
    def pods(self) -> set[str]:
        """The UIDs of the pods that run."""
        with self._lock:
            return set(self._pods)

    def find(self, pod_uid: str) -> RunningPod | None:
        """A running pod."""
        with self._lock:
            return self._pods.get(pod_uid)

    def find_log(self, pod_uid: str, container: str) -> ContainerLog | None:
        """What a container printed, also after its end; None where it never started, or long ago."""
        with self._lock:
            return self._logs.get((pod_uid, container))

    def start(
        self,
        pod_uid: str,
        containers: Mapping[str, Sequence[str]],
        commands: Mapping[str, Command] | None = None,
    ) -> RunningPod:
        """Start a pod whose containers get these CDI devices; ``commands`` are theirs, by name.

        Raises NodeIncomplete where containerd could not create a container, and then starts none.
        """
        views = {name: resolve(self._cdi_dir, device_ids) for name, device_ids in containers.items()}
        pod = RunningPod(views, now())
        logs = {name: ContainerLog(self._changed) for name in views}
        with self._lock:
            self._pods[pod_uid] = pod
            self._logs |= {(pod_uid, name): log for name, log in logs.items()}
            while len(self._logs) > _KEPT_LOGS:
                self._logs.popitem(last=False)
        for name, command in (commands or {}).items():
            self._start_command(name, command, pod, logs[name])
        return pod

    def _start_command(self, name: str, command: Command, pod: RunningPod, log: ContainerLog) -> None:
        """Play a container's command in a thread; none is needed to say that there is nothing to play."""
        play_it = partial(_play, name, command, pod, log)
        if not command.words:
            play_it()
            return
        player = threading.Thread(target=play_it, name=f"container {name}", daemon=True)
        with self._lock:
            self._players = [one for one in self._players if one.is_alive()]
            self._players.append(player)
            player.start()

    def end(self, pod_uid: str) -> None:
        """End a pod's containers; nothing happens when it does not run."""
        with self._lock:
            pod = self._pods.pop(pod_uid, None)
            logs = [log for (uid, _), log in self._logs.items() if uid == pod_uid]
        if pod is not None:
            pod.ended.set()
            for process in tuple(pod.processes):
                process.kill()
        for log in logs:
            log.end()

    def close(self) -> None:
        """End all pods, and wait for what they still do."""
        for uid in self.pods:
            self.end(uid)
        with self._lock:
            players, self._players = self._players, []
        for player in players:
            player.join(_END_SECONDS)


def _play(name: str, command: Command, pod: RunningPod, log: ContainerLog) -> None:
    """Print what a container prints; at its end, or when the command is over."""

    def wait(seconds: float) -> bool:
        return pod.ended.wait(None if seconds == float("inf") else seconds)

    view = pod.containers[name]
    try:
        env = {**command.env, **view.env}
        play(Command(command.words, env), partial(_run, pod, view), log.print, wait)
    except Exception as error:  # noqa: BLE001 - the thread has nobody who would hear of it
        unforeseen.note(f"the command of the container {name}", error)


def _run(pod: RunningPod, view: ContainerView, program: str, arguments: Sequence[str]) -> Output | None:
    """Run a program that CDI brought into the container, and no other; None for any other."""
    name = program.rpartition("/")[2]
    if name not in _BROUGHT:
        return None
    path = next((one for one in view.mounts if one == program or one.rpartition("/")[2] == program), None)
    if path is None:
        return NOT_FOUND, f"sh: 1: {program}: not found\n"
    # Of what a pod sets for itself nothing reaches a process of this machine.
    nodes = {VISIBLE_NODES: ":".join(sorted(view.nodes))}
    with subprocess.Popen(
        [view.mounts[path].host_path, *arguments],
        env={**view.env, **nodes, "PATH": PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        pod.processes.add(process)
        if pod.ended.is_set():
            process.kill()
        output, _ = process.communicate()
        pod.processes.discard(process)
    return process.returncode, output
