"""Keeps one MPS control daemon as it shall be: starts it, sets its limits, starts it anew when it dies."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked, DriverError
from driver.process.log import get_logger
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, MpsState
from kubeletplugin.sharing.mps.alarms import Alarms
from kubeletplugin.sharing.mps.control import CONTROL, Control, NoDaemon
from kubeletplugin.sharing.mps.daemon_process import DaemonProcess, adopt_daemon, start_daemon
from kubeletplugin.sharing.mps.folders import DaemonFolder
from kubeletplugin.sharing.mps.memory import Memory
from kubeletplugin.sharing.mps.processes import (
    PIPE_DIRECTORY,
    VISIBLE_DEVICES,
    MpsProcess,
    daemons,
    end_left_over,
    mps_processes,
)

FIRST_BACK_OFF_SECONDS = 0.1
LAST_BACK_OFF_SECONDS = 10.0
LOOK_SECONDS = 0.01
"""How often a starting daemon's socket is looked for, while its end would be noticed at once."""

_log = get_logger(__name__)

_UUID = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Site:
    """Where daemons run, and how long things may take.

    ``proc`` shows the processes of the whole node. A batch of commands takes up to ``command_seconds``, a
    start with its limits up to ``start_seconds``. Clients have ``quit_seconds`` to end before they are
    ended, the daemon ``end_seconds`` to heed ``quit``, and as long again for SIGTERM.
    """

    programs: DriverPrograms
    mps_dir: Path
    proc: Path
    memory: Memory
    command_seconds: float = 10.0
    start_seconds: float = 15.0
    quit_seconds: int = 5
    end_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Ties:
    """What a keeper needs of the supervisor: alarms, ``soon`` for work that takes time, and whom to tell."""

    alarms: Alarms
    soon: Callable[[Callable[[], None]], None]
    changed: Callable[[], None]
    retired: Callable[[DaemonKeeper], None]


class Retired(Exception):
    """The daemon was stopped meanwhile: it needs a new keeper."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """What an attempt for a daemon came to, and when."""

    daemon: MpsDaemon
    error: DriverError
    moment: float


class DaemonKeeper:
    """One daemon, from the first ``ensure`` until ``stop``; ``state`` is what is to be told of it."""

    def __init__(self, name: str, site: Site, ties: Ties) -> None:
        """Raises ClaimRefused for a name that is none, ConfigError when its paths would be too long."""
        self.name = name
        self.state: MpsState | None = None
        self._site = site
        self._ties = ties
        self._folder = DaemonFolder(site.mps_dir, name)
        self._control = Control(site.programs, self._folder, site.command_seconds)
        self._lock = threading.Lock()
        self._wanted: MpsDaemon | None = None
        self._serving: MpsDaemon | None = None
        self._process: DaemonProcess | None = None
        self._failure: _Failure | None = None
        self._failures = 0
        self._trying_later = False
        self._retired = False

    def recover(self) -> None:
        """Take over what an earlier supervisor left: adopt or start it soon. Raises StorageError.

        A daemon without a readable record is only told of: whoever wants it says what it shall be.
        """
        self._wanted = self._folder.read()
        if self._wanted is None:
            self._tell(f"what it shall be is not known: {self._folder.record} is missing or was unreadable")
            return
        self._tell("it is looked for after a start of the supervisor")
        self._ties.soon(self._revive)

    def ensure(self, daemon: MpsDaemon, timeout_seconds: float) -> None:
        """Have the daemon run just so; returns once it serves and its limits were read back.

        A new one that fails is forgotten; one that was to run already goes on being tried. Raises
        Retired, ClaimBlocked, NodeIncomplete or StorageError.
        """
        asked = time.monotonic()
        with self._held(timeout_seconds):
            if self._serving == daemon and self._process and not self._process.ended_within(0):
                return
            failure = self._failure
            if failure and failure.daemon == daemon and failure.moment >= asked:
                raise failure.error  # of an attempt that ended while this call waited for it
            self._check_not_retired()
            is_new = self._wanted is None
            try:
                self._bring_up(daemon)
            except DriverError as error:
                self._failed(daemon, error)
                if is_new:
                    self._forget()
                else:
                    self._try_later(error)
                raise

    def stop(self, timeout_seconds: float) -> None:
        """End the daemon and all of its servers, and remove its folder; one that is not there is fine.

        Raises Retired, ClaimBlocked when a process does not end, or StorageError.
        """
        with self._held(timeout_seconds):
            self._check_not_retired()
            self._forget()

    @contextmanager
    def _held(self, timeout_seconds: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, timeout_seconds)):
            raise ClaimBlocked(
                f"the MPS daemon {self.name} is still being worked on after {timeout_seconds:.0f} s",
                "it is tried again; the supervisor's log says what takes so long",
            )
        try:
            yield
        finally:
            self._lock.release()

    def _check_not_retired(self) -> None:
        if self._retired:
            raise Retired

    def _tell(self, message: str = "", *, running: bool = False) -> None:
        state = MpsState(self.name, running, message)
        if state != self.state:
            self.state = state
            _log.info("state of an MPS daemon", daemon=self.name, running=running, message=message)
            self._ties.changed()

    def _bring_up(self, daemon: MpsDaemon) -> None:
        """Adopt, start or only limit the daemon, whichever is needed; the lock is held."""
        self._serving = None
        process = self._living()
        if process and (not process.serves(daemon) or self._lifts_a_limit(daemon)):
            self._tell("it is ended, to be started with other settings")
            self._end(process)
            process = None
        if self._wanted != daemon:
            self._folder.write(daemon)
            self._wanted = daemon
        if process is None:
            self._tell("it is being started")
            self._start(daemon)
        else:
            self._control.set_limits(daemon, time.monotonic() + self._site.command_seconds)
        self._folder.let_clients_in()
        self._serving = daemon
        self._tell(running=True)

    def _living(self) -> DaemonProcess | None:
        """The daemon's process, ours or an earlier supervisor's, if it lives."""
        if self._process and self._process.ended_within(0):
            self._buried()
        if self._process is None:
            process = adopt_daemon(self._folder)
            if process:
                _log.info("MPS daemon adopted", daemon=self.name, pid=process.pid)
                self._watch(process)
        return self._process

    def _lifts_a_limit(self, daemon: MpsDaemon) -> bool:
        """Whether memory that is limited shall not be: MPS has no command for it."""
        before = self._wanted.pinned_memory_mib if self._wanted else ()
        after = daemon.pinned_memory_mib
        return any(mib and not any(after[place : place + 1]) for place, mib in enumerate(before))

    def _start(self, daemon: MpsDaemon) -> None:
        refuse_foreign_daemon(daemon, self._folder.pipes, self._site.proc)
        end_left_over(self._folder.pipes)
        self._site.memory.make(self._folder)
        self._folder.make_ready()
        deadline = time.monotonic() + self._site.start_seconds
        process = start_daemon(self._site.programs, self._folder, daemon, self._site.memory)
        try:
            self._wait_until_it_serves(process, daemon, deadline)
        except BaseException:
            process.end(0)
            process.close()
            end_left_over(self._folder.pipes)
            raise
        _log.info("MPS daemon started", daemon=self.name, pid=process.pid, devices=daemon.devices)
        self._watch(process)

    def _wait_until_it_serves(self, process: DaemonProcess, daemon: MpsDaemon, deadline: float) -> None:
        """Set the limits as soon as it answers; raises ClaimBlocked when it ends, or not in time."""
        while not process.ended_within(LOOK_SECONDS):
            if time.monotonic() > deadline:
                raise self._no_start(f"it did not answer within {self._site.start_seconds:.0f} s")
            if self._folder.control_socket.is_socket():
                try:
                    self._control.set_limits(daemon, deadline)
                    return
                except NoDaemon:
                    continue  # it has its socket and does not listen yet, or has ended
        raise self._no_start("it ended at once")

    def _no_start(self, why: str) -> ClaimBlocked:
        words = self._folder.last_words()
        said = f", and said: {words}" if words else ""
        return ClaimBlocked(
            f"the MPS daemon {self.name} did not start: {why}{said}",
            "it is tried again; mend what it complains about",
        )

    def _watch(self, process: DaemonProcess) -> None:
        self._process = process
        self._ties.alarms.when_dead(process.pidfd, lambda: self._ties.soon(lambda: self._died(process)))

    def _died(self, process: DaemonProcess) -> None:
        with self._lock:
            if self._process is not process:
                return
            lived_seconds = time.monotonic() - process.since
            how = self._buried()
            if self._wanted is not None:
                if lived_seconds > LAST_BACK_OFF_SECONDS:
                    self._failures = 0
                words = self._folder.last_words()
                said = f", and said: {words}" if words else ""
                self._try_later(ClaimBlocked(f"the MPS daemon {self.name} {how}{said}", "it is started anew"))

    def _buried(self) -> str:
        """Let go of the process, which has ended; returns how it did."""
        process, self._process = self._process, None
        self._serving = None
        return process.close() if process else ""

    def _try_later(self, error: DriverError) -> None:
        """Tell why it does not serve, and try again after a while that doubles each time."""
        self._tell(f"{error.what}: {error.way_out}")
        delay = min(FIRST_BACK_OFF_SECONDS * 2 ** min(self._failures, 30), LAST_BACK_OFF_SECONDS)
        if not self._trying_later:
            self._trying_later = True
            self._failures += 1
            _log.warning("MPS daemon does not serve", daemon=self.name, error=str(error), again_seconds=delay)
            self._ties.alarms.after(delay, lambda: self._ties.soon(self._revive))

    def _revive(self) -> None:
        with self._lock:
            self._trying_later = False
            if self._wanted is None or self._serving is not None:
                return
            try:
                self._bring_up(self._wanted)
            except DriverError as error:
                self._failed(self._wanted, error)
                self._try_later(error)

    def _failed(self, daemon: MpsDaemon, error: DriverError) -> None:
        self._failure = _Failure(daemon, error, time.monotonic())

    def _forget(self) -> None:
        """End what runs and leave nothing behind; this keeper has done its work."""
        self._serving = self._wanted = None
        self._tell("it is being ended")
        process = self._living()
        if process:
            self._end(process)
        end_left_over(self._folder.pipes)
        self._site.memory.remove(self._folder)
        self._folder.remove()
        self._retired = True
        self.state = None
        self._ties.retired(self)

    def _end(self, process: DaemonProcess) -> None:
        """Ask the daemon to quit, and make sure; raises ClaimBlocked when it does not end."""
        seconds = self._site.quit_seconds
        try:
            self._control.quit(seconds, seconds + self._site.end_seconds)
        except DriverError as error:
            _log.warning("MPS daemon did not quit", daemon=self.name, error=str(error))
        process.end(self._site.end_seconds)
        self._buried()
        end_left_over(self._folder.pipes)


def refuse_foreign_daemon(daemon: MpsDaemon, pipes: Path, proc: Path) -> None:
    """Make sure that no other daemon on the node serves, or may serve, a device of this one.

    Two daemons cannot both have a GPU in compute mode EXCLUSIVE_PROCESS: the clients of one of them would
    fail. A process that only looks like a daemon must not keep ours from starting, so processes without
    rights over the node are skipped (kubeletplugin.sharing.mps.processes). Raises ClaimBlocked, naming the
    other daemon and how to end it.
    """
    others = [process for process in mps_processes(proc) if process.is_privileged]
    for other in daemons(others):
        is_this = other.is_our_daemon and other.pipes == str(pipes)
        how = None if is_this else _serves(other, daemon.devices)
        # Whoever names the GPU by its UUID means it. A daemon in a container sees fewer GPUs than there are.
        if how is not None and (how.startswith("serves GPU-") or _reaches(other, daemon.devices, proc)):
            raise ClaimBlocked(
                f"another MPS control daemon {how}: process {other.pid}, pipe directory {other.pipes}",
                f"end it (echo quit | {PIPE_DIRECTORY}={other.pipes} {CONTROL}), or keep the GPU from it",
            )


def _serves(other: MpsProcess, devices: tuple[str, ...]) -> str | None:
    """How another daemon serves one of the devices, or None when it serves others alone."""
    if other.environment is None:
        return "may serve the same GPU, its environment cannot be read"
    if other.devices is None:
        return "serves all GPUs that it sees"
    for word in other.devices:
        named = next((device for device in devices if device.startswith(word)), None)
        if named is not None and word.startswith(("GPU-", "MIG-")):  # CUDA takes the beginning of a UUID
            return f"serves {named}"
        if word.isdigit():
            return f"may serve the same GPU, its {VISIBLE_DEVICES} is {','.join(other.devices)}"
    return None


def _reaches(other: MpsProcess, devices: tuple[str, ...], proc: Path) -> bool:
    """Whether a device node of one of the devices is where the other process looks; yes when unknown."""
    minors = _minors(proc)
    if not all(device in minors for device in devices):
        return True
    nodes = (proc / str(other.pid) / "root" / "dev" / f"nvidia{minors[device]}" for device in devices)
    try:
        return any(node.exists() for node in nodes)
    except OSError:
        return True


def _minors(proc: Path) -> dict[str, int]:
    """The minor numbers of the GPUs by UUID, as the NVIDIA driver tells; empty where it does not."""
    minors = {}
    for file in (proc / "driver" / "nvidia" / "gpus").glob("*/information"):
        text = file.read_text(errors="replace")
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            minors[uuid[1]] = int(minor[1])
    return minors
