"""The container runtime of a node: which containers run, what CDI put into each, what they print.

A container runs until its command is over, it is killed, or its pod ends; it ends at once, without a grace.
Commands are played (see played_commands). A command that cannot be played is taken for a server, which runs
on, and in an init container for a program that succeeds. A restart of the kubelet does not touch containers.
Each has a control group, a folder in ``cgroups``, which is removed when the container ends.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from envtest.cdi import resolve
from envtest.cluster import HostCommand, Output, PlayedContainer, PlayedPrograms
from envtest.embedded.api import unforeseen
from envtest.embedded.api.container_log import ContainerLog
from envtest.embedded.api.defaults import now
from envtest.embedded.node import containers
from envtest.embedded.node.container_hooks import run_create_runtime
from envtest.embedded.node.played_commands import NOT_FOUND, PATH, Command, Player

# Logs of ended pods are kept too, for ``kubectl logs``.
_KEPT_LOGS = 500
_END_SECONDS = 5.0
_SILENT_SECONDS = 2.0
"""How long a program may print nothing before its container counts as running."""


class ContainerRuntime:
    """The pods that run on one node, by UID. Thread-safe, but of one pod one container is started at a time.

    ``changed`` is notified when a container has printed something, and ``on_end`` is called when one has
    ended by itself or was killed, or turns out to run on because its command cannot be played. ``programs``
    are what a driver brings into containers.
    """

    def __init__(self, cdi_dir: Path, cgroups: Path, changed: threading.Condition | None = None) -> None:
        self._cdi_dir = cdi_dir
        self._cgroups = cgroups
        self._changed = changed or threading.Condition()
        self.on_end: Callable[[], None] = _ignore_end
        self.programs: PlayedPrograms | None = None
        self._lock = threading.Lock()
        self._pods: dict[str, containers.RunningPod] = {}
        self._logs: OrderedDict[tuple[str, str], ContainerLog] = OrderedDict()
        self._players: list[threading.Thread] = []

    @property
    def pods(self) -> set[str]:
        """The UIDs of the pods that it has."""
        with self._lock:
            return set(self._pods)

    def find(self, pod_uid: str) -> containers.RunningPod | None:
        """A copy of a pod's present state, None where the runtime does not have the pod."""
        with self._lock:
            found = self._pods.get(pod_uid)
            return None if found is None else containers.RunningPod(found.sandbox, dict(found.runs))

    def find_log(self, pod_uid: str, container: str) -> ContainerLog | None:
        """What a container printed, also after its end; None where it never started, or long ago."""
        with self._lock:
            return self._logs.get((pod_uid, container))

    def add(self, sandbox: containers.PodSandbox) -> None:
        """Add a pod without containers."""
        with self._lock:
            self._pods.setdefault(sandbox.uid, containers.RunningPod(sandbox))

    def start(
        self,
        pod_uid: str,
        name: str,
        device_ids: Sequence[str],
        command: Command,
        *,
        image: str = "",
        ends: bool = False,
    ) -> None:
        """Start a container with these CDI devices in a pod that was added.

        It ends with its command; where it ``ends``, also with one that cannot be played. Raises
        InjectionFailed where containerd could not create the container, and StartFailed where runc did not
        start it, which leaves one that has ended.
        """
        pod = self._pods[pod_uid]
        # containerd applies CDI when it creates the container, so an error leaves nothing.
        view = resolve(self._cdi_dir, device_ids)
        before = pod.last(name)
        container_id = uuid.uuid4().hex
        container = containers.Container(
            id=container_id,
            name=name,
            attempt=0 if before is None else before.attempt + 1,
            view=view,
            cgroup=f"{_cgroup_of(pod_uid)}/{container_id}",
            started_at=now(),
            log=ContainerLog(self._changed),
        )
        self._make_cgroup(container)
        try:
            # runc has made the control group by then, and a hook may set limits on it.
            run_create_runtime(container, pod.sandbox, image, self.programs)
        except containers.StartFailed as error:
            self._remove_cgroup(container)
            container.end = containers.ContainerEnd(
                containers.NOT_STARTED, "StartError", now(), time.monotonic(), str(error)
            )
            container.ended.set()
            container.log.end()
            self._keep(pod, containers.Runs(container, before))
            raise
        self._keep(pod, containers.Runs(container, before))
        self._start_command(container, command, ends=ends)

    def _keep(self, pod: containers.RunningPod, runs: containers.Runs) -> None:
        with self._lock:
            pod.runs[runs.last.name] = runs
            self._logs[pod.sandbox.uid, runs.last.name] = runs.last.log
            while len(self._logs) > _KEPT_LOGS:
                self._logs.popitem(last=False)

    def _start_command(self, container: containers.Container, command: Command, *, ends: bool) -> None:
        """Play a container's command, in a thread of its own if there is one to play."""
        if not command.words and not ends:
            _play(command, container, _ignore_end, self.programs)
            return
        container.begun = False

        def begin() -> None:
            if not container.begun:
                container.begun = True
                self.on_end()

        def play_to_the_end() -> None:
            code = _play(command, container, begin, self.programs)
            container.begun = True
            if code is not None or ends:
                self._end_container(container, code or 0, "Error" if code else "Completed")
            else:
                container.unplayed = True
                self.on_end()

        player = threading.Thread(target=play_to_the_end, name=f"container {container.name}", daemon=True)
        with self._lock:
            self._players = [one for one in self._players if one.is_alive()]
            self._players.append(player)
            player.start()

    def kill_container(self, container: containers.Container) -> None:
        """End a container as SIGKILL does; nothing happens when it has ended."""
        self._end_container(container, containers.KILLED, "Error")

    def _end_container(self, container: containers.Container, exit_code: int, reason: str) -> None:
        """Kill its processes, remove its control group, and only then report its end."""
        with self._lock:
            if container.ended.is_set():
                return
            container.ended.set()
        for process in tuple(container.processes):
            process.kill()
        self._remove_cgroup(container)
        container.end = containers.ContainerEnd(exit_code, reason, now(), time.monotonic())
        container.log.end()
        self.on_end()

    def end(self, pod_uid: str) -> None:
        """End a pod's containers; nothing happens when it does not run."""
        with self._lock:
            pod = self._pods.pop(pod_uid, None)
        for one in () if pod is None else tuple(pod.runs.values()):
            self._end_container(one.last, containers.KILLED, "Error")
        # The group of the pod goes last, as the kubelet removes it after those of its containers.
        shutil.rmtree(self._folder(_cgroup_of(pod_uid)), ignore_errors=True)

    def close(self) -> None:
        """End all pods, and wait for the threads of their containers."""
        for uid in self.pods:
            self.end(uid)
        with self._lock:
            players, self._players = self._players, []
        for player in players:
            player.join(_END_SECONDS)

    def _folder(self, cgroup: str) -> Path:
        return self._cgroups / cgroup.lstrip("/")

    def _make_cgroup(self, container: containers.Container) -> None:
        self._folder(container.cgroup).mkdir(parents=True)

    def _remove_cgroup(self, container: containers.Container) -> None:
        shutil.rmtree(self._folder(container.cgroup), ignore_errors=True)


def _ignore_end() -> None:
    """The callback for ended containers before there is a kubelet."""


def _cgroup_of(pod_uid: str) -> str:
    """The control group of a pod below the root, as the kubelet's cgroupfs driver names it."""
    return f"/kubepods/besteffort/pod{pod_uid}"


def _play(
    command: Command,
    container: containers.Container,
    begin: Callable[[], None],
    programs: PlayedPrograms | None,
) -> int | None:
    """Play the command of a container; returns its exit code, None where it cannot be played to its end.

    ``begin`` is called when it has printed something, waits, or has been silent for a while.
    """

    def wait(seconds: float) -> bool:
        begin()
        return container.ended.wait(None if seconds > threading.TIMEOUT_MAX else seconds)

    def write(text: str) -> None:
        container.log.print(text)
        begin()

    def run(program: str, arguments: Sequence[str]) -> Output | None:
        """Run a program that was brought into the container."""
        if programs is None:
            return None
        played = programs.command(PlayedContainer(container.view, container.cgroup), program, arguments)
        return _run_on_node(container, begin, played) if isinstance(played, HostCommand) else played

    try:
        env = {**command.env, **container.view.env}
        player = Player(run, programs, write, wait)
        return player.play(Command(command.words, env))
    except Exception as error:  # noqa: BLE001 - nobody catches what the thread raises
        unforeseen.note(f"the command of the container {container.name}", error)
        return NOT_FOUND


def _run_on_node(container: containers.Container, begin: Callable[[], None], command: HostCommand) -> Output:
    """Run a program of this machine as the container's, and wait for its end."""
    # Variables that the pod itself sets do not reach a process of this machine.
    with subprocess.Popen(
        command.words,
        env={**container.view.env, "PATH": PATH, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        # Added first: whoever ends the container now kills the process, or it is killed here.
        container.processes.add(process)
        if container.ended.is_set():
            process.kill()
        try:
            output, _ = process.communicate(timeout=_SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            begin()
            output, _ = process.communicate()
        container.processes.discard(process)
    return process.returncode, output
