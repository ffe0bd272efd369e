"""A node's MPS for tests: a machine, its driver root with real (fake) programs, and a supervisor."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from fakegpu.driver_files.driver_root import CALL_LOG
from fakegpu.mps.client import PRIVILEGED, Connection
from kubeletplugin.kubelet.wire.mps_daemon import SOCKET, MpsStates
from kubeletplugin.sharing.mps.daemon_keeper import Site
from kubeletplugin.sharing.mps.daemon_shm import DaemonMemory
from kubeletplugin.sharing.mps.processes import CONTROL, daemons, kill
from kubeletplugin.sharing.mps.supervisor import Supervisor, handlers
from tests.clusters import Service
from tests.gpus import CudaProcess, DriverError, FakeMachine, build_driver_root
from tests.plugin import (
    DaemonFolder,
    DriverPrograms,
    InstalledDriver,
    MpsClient,
    MpsDaemon,
    MpsState,
    SocketServer,
    end_left_over,
    mps_processes,
)

NAME = "gpu-0000-01-00-0"
DEADLINE_SECONDS = 30.0


class MpsScene:
    """Four A30 and their programs; daemons are below ``mps_dir``, whose path is short.

    ``proc`` is what shows the processes of the node: nothing, unless a test puts something there.
    """

    def __init__(self, folder: Path, machine: str = "a30-quad") -> None:
        self.machine = FakeMachine.open(f"{machine}@{folder / 'state.json'}")
        self.root = build_driver_root(folder / "root", self.machine)
        self.proc = folder / "proc"
        self.proc.mkdir()
        self._short = tempfile.TemporaryDirectory(prefix="mps")
        self.mps_dir = Path(self._short.name) / "mps"
        self._services: list[Service] = []
        self._supervisors: list[Supervisor] = []

    def site(
        self,
        *,
        start_seconds: float = 15.0,
        command_seconds: float = 10.0,
        memory: DaemonMemory | None = None,
    ) -> Site:
        programs = DriverPrograms(InstalledDriver.below(self.root), self.mps_dir.with_name("libraries"))
        return Site(
            programs, self.mps_dir, self.proc, memory or DaemonMemory(None, self.proc),
            command_seconds=command_seconds, start_seconds=start_seconds,
            quit_seconds=0, end_seconds=1.0,
        )  # fmt: skip

    def supervisor(self, site: Site | None = None) -> Supervisor:
        """A supervisor in this process, whose daemons end with the test."""
        self._services.append(Service())
        self._supervisors.append(Supervisor(site or self.site(), self._services[-1]))
        return self._supervisors[-1]

    def serving(self, memory: DaemonMemory | None = None) -> Supervisor:
        """A supervisor in this process whose daemon runs."""
        supervisor = self.supervisor(self.site(memory=memory))
        supervisor.ensure(self.daemon(), DEADLINE_SECONDS)
        return supervisor

    def end_supervisor(self) -> None:
        """End the supervisor that was started last, as its process does."""
        self._services.pop().stop()
        self._supervisors.pop().close()

    def uuid(self, index: int) -> str:
        return self.machine.uuid(self.machine.pci(index))

    def daemon(
        self, percentage: int = 25, pinned: int = 6144, name: str = NAME, gpu: int = 0, *, multi: bool = False
    ) -> MpsDaemon:
        return MpsDaemon(name, (self.uuid(gpu),), multi, percentage, (pinned,))

    def folder(self, name: str = NAME) -> DaemonFolder:
        return DaemonFolder(self.mps_dir, name)

    def pid(self, name: str = NAME) -> int | None:
        """The daemon's process id, if it lives."""
        pipes = str(self.folder(name).pipes)
        ours = daemons([one for one in mps_processes() if one.in_our_group])
        return next((one.pid for one in ours if one.pipes == pipes), None)

    def kill(self, name: str = NAME) -> int:
        """Kill the daemon; returns the process id that it had, once it has gone."""
        pid = self.pid(name)
        assert pid is not None
        pidfd = os.pidfd_open(pid)
        try:
            kill(pidfd, name)
        finally:
            os.close(pidfd)
        return pid

    def limits(self, name: str = NAME) -> tuple[str, str]:
        """Percentage and memory of ordinal 0, as the daemon itself says them."""
        commands = ("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0")
        return (self.ask(commands[0], name), self.ask(commands[1], name))

    def ask(self, command: str, name: str = NAME) -> str:
        line = Connection(self.folder(name).pipes, PRIVILEGED)
        try:
            answer: str = line.ask({"command": command})["answer"]
        finally:
            line.close()
        return answer

    def client(self, name: str = NAME, process_id: int = 4_000_001) -> CudaProcess:
        """A CUDA process in a container: it sees what clients are shown."""
        return CudaProcess(self.folder(name).clients, process_id=process_id, user_id=os.getuid())

    def commands(self) -> int:
        """How many times the control program was run, as a daemon or with commands."""
        log = self.root / CALL_LOG
        lines = log.read_text().splitlines() if log.exists() else []
        return sum(line.startswith(CONTROL) for line in lines)

    def close(self) -> None:
        """End everything, also what a failed test left."""
        self.machine.heal_mps()
        for supervisor in self._supervisors:
            for state in supervisor.states().daemons:
                with suppress(DriverError):
                    supervisor.stop(state.name, DEADLINE_SECONDS)
            supervisor.close()
        for service in self._services:
            service.stop()
        for folder in self.mps_dir.glob("*/pipe"):
            end_left_over(folder)
        self._short.cleanup()


@contextmanager
def served(mps: MpsScene, supervisor: Supervisor) -> Iterator[SocketServer]:
    """A supervisor behind its socket inside the block."""
    mps.mps_dir.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(64) as pool:
        server = SocketServer(mps.mps_dir / SOCKET, handlers(supervisor), pool)
        server.start()
        try:
            yield server
        finally:
            supervisor.close()
            server.stop(0)


def told(states: Iterator[MpsStates], true: Callable[[tuple[MpsState, ...]], bool]) -> tuple[MpsState, ...]:
    """The first states of a stream of which something is true."""
    end = time.monotonic() + DEADLINE_SECONDS
    for state in states:
        if true(state.daemons):
            return state.daemons
        assert time.monotonic() < end, f"the last states were {state}"
    raise AssertionError("the stream ended")


def running(states: tuple[MpsState, ...]) -> bool:
    return bool(states) and all(state.running for state in states)


def has_rights_over_the_node() -> bool:
    """Whether this process has CAP_SYS_ADMIN, as a privileged supervisor has."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if "CapEff" in one]
    return bool(int(line.split()[1], 16) & 1 << 21)


@contextmanager
def mps_process(*arguments: str, pipes: str, visible: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one of MPS, by its name, its arguments and its environment."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": pipes}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    code = "open('/proc/self/comm', 'w').write('nvidia-cuda-mps'); print(flush=True); input()"
    words = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def following(client: MpsClient, update: Callable[[tuple[MpsState, ...] | None], object]) -> Iterator[None]:
    """The client follows the supervisor's states inside the block, and is closed behind it."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.follow, update)
        try:
            yield
        finally:
            client.close()
        future.result(DEADLINE_SECONDS)
