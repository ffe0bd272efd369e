"""Keeps one MPS control daemon running: starts it, sets its limits, starts it again when it dies.

The daemon is a child of the supervisor and ends with the supervisor's container. One that outlives its
supervisor elsewhere is ended by the next one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked, DriverError, StorageError
from driver.process.log import get_logger
from kubeletplugin.devices.host.driver_programs import DriverPrograms, cannot_be_run
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, MpsState
from kubeletplugin.sharing.mps import processes
from kubeletplugin.sharing.mps.daemon_shm import DaemonMemory
from kubeletplugin.sharing.mps.folders import DaemonFolder
from kubeletplugin.sharing.mps.processes import CONTROL, Control, NoDaemon

FIRST_BACK_OFF_SECONDS = 0.1
LAST_BACK_OFF_SECONDS = 10.0
LOOK_SECONDS = 0.01
"""How often to check for the socket of a starting daemon; its end is noticed at once."""

_log = get_logger(__name__)

_UUID = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Site:
    """Where daemons run, and how long each step may take."""

    programs: DriverPrograms
    mps_dir: Path
    # Shows the processes of the whole node.
    proc: Path
    memory: DaemonMemory
    # For a batch of commands.
    command_seconds: float = 10.0
    # For a start, with setting the limits.
    start_seconds: float = 15.0
    # For clients to end by themselves once the daemon was told to quit.
    quit_seconds: int = 5
    # For the daemon to obey the command, and the same again for SIGTERM.
    end_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a keeper needs of the supervisor."""

    # Runs work in another thread after so many seconds, unless the supervisor ends before.
    later: Callable[[float, Callable[[], None]], None]
    # Called when the state of a daemon has changed.
    changed: Callable[[], None]
    # Called when a keeper has ended its daemon for good.
    retired: Callable[[DaemonKeeper], None]


class StartHangs(ClaimBlocked):
    """A daemon did not answer in time after its start: CUDA waits for this GPU, or for another one."""


class Retired(Exception):
    """The daemon was stopped meanwhile, so another keeper is needed."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of an attempt to run a daemon, and when it ended."""

    daemon: MpsDaemon
    error: DriverError
    moment: float


class DaemonProcess:
    """A control daemon that runs, or has ended since; ``died(self)`` is called once it has ended."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        daemon: MpsDaemon,
        died: Callable[[DaemonProcess], None],
    ) -> None:
        self.pid = child.pid
        self.since = time.monotonic()
        self.ended = threading.Event()
        # What it was started with.
        self._devices, self._multi_user = daemon.devices, daemon.multi_user
        self._child = child
        self._died = died
        # A daemon thread, so that the supervisor can end before the child does.
        threading.Thread(target=self._wait, name=f"mps {daemon.name}", daemon=True).start()

    def serves(self, daemon: MpsDaemon) -> bool:
        """Whether it was started for the same devices and users."""
        return (self._devices, self._multi_user) == (daemon.devices, daemon.multi_user)

    def has_ended(self) -> bool:
        """Whether it has ended, even if the thread that waits for it has not run since."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # the thread was faster
            return True
        return ended is not None

    def end(self, patience_seconds: float) -> None:
        """End it by SIGTERM, then SIGKILL; raises ClaimBlocked if it does not end."""
        self._child.terminate()
        if not self.ended.wait(patience_seconds):
            self._child.kill()
        if not self.ended.wait(processes.GONE_SECONDS):
            raise ClaimBlocked(
                f"MPS control daemon {self.pid} was killed but has not ended",
                "it is tried again; a process that the NVIDIA driver holds needs the GPU to be reset",
            )

    def how_it_ended(self) -> str:
        """How a daemon that has ended did so, for messages."""
        code = self._child.returncode
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _wait(self) -> None:
        self._child.wait()
        self.ended.set()
        self._died(self)


def start_daemon(
    programs: DriverPrograms,
    folder: DaemonFolder,
    daemon: MpsDaemon,
    memory: DaemonMemory,
    died: Callable[[DaemonProcess], None],
) -> DaemonProcess:
    """Start the daemon, which does not answer yet; raises NodeIncomplete or StorageError."""
    program = programs.find(CONTROL)
    command, environment = memory.command(
        folder,
        [program.path, "-f", *(["-M"] if daemon.multi_user else [])],
        {**program.environment, **folder.environment(), processes.VISIBLE_DEVICES: ",".join(daemon.devices)},
    )
    # Its output goes to a file: the write to a pipe that nobody reads any longer would end it (SIGPIPE).
    try:
        output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(
            f"cannot write {folder.output}: {error.strerror}", f"make {folder.path} writable"
        ) from error
    try:
        # In a session of its own, it gets no signals that are sent to the supervisor's process group.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise cannot_be_run(program, error) from error
    finally:
        os.close(output)
    return DaemonProcess(child, daemon, died)


class DaemonKeeper:
    """One daemon, from the first ``ensure`` until ``stop``; ``state`` is its published state."""

    def __init__(self, name: str, site: Site, callbacks: Callbacks) -> None:
        """Raises ClaimRefused for an invalid name, ConfigError if its paths would be too long."""
        self.name = name
        self.state: MpsState | None = None
        self._site = site
        self._callbacks = callbacks
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
        """Run the daemon of an earlier supervisor anew, soon. Raises StorageError."""
        self._wanted = self._folder.read()
        if self._wanted is None:
            # Its settings are unknown until the plugin sends them again, so it is only reported.
            self._tell(f"its settings are not known: {self._folder.record} is missing or was unreadable")
            return
        self._tell("it is started again after a start of the supervisor")
        self._trying_later = True
        self._callbacks.later(0, self._try_again)

    def ensure(self, daemon: MpsDaemon, timeout_seconds: float) -> None:
        """Run the daemon with these settings; returns once it serves and its limits were read back.

        A new daemon that fails is forgotten; one that was to run before is tried again later. Raises Retired,
        ClaimBlocked, NodeIncomplete or StorageError.
        """
        asked = time.monotonic()
        with self._held(timeout_seconds):
            if self._serving == daemon and self._process and not self._process.has_ended():
                return
            failure = self._failure
            if failure and failure.daemon == daemon and failure.moment >= asked:
                # Another call tried the same while this one waited for the lock; its error counts for both.
                raise failure.error
            self._check_not_retired()
            is_new = self._wanted is None
            try:
                self._bring_up(daemon)
            except DriverError as error:
                self._failed(daemon, error)
                if is_new:
                    self._end_for_good()
                else:
                    self._try_later(error)
                raise

    def stop(self, timeout_seconds: float) -> None:
        """End the daemon and all of its servers, and remove its folder, as far as they exist.

        Raises Retired, ClaimBlocked if a process does not end, or StorageError.
        """
        with self._held(timeout_seconds):
            self._check_not_retired()
            self._end_for_good()

    @contextmanager
    def _held(self, timeout_seconds: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, timeout_seconds)):
            raise ClaimBlocked(
                f"the MPS daemon {self.name} is still being worked on after {timeout_seconds:.0f} s",
                "it is tried again; see the supervisor's log",
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
            self._callbacks.changed()

    def _bring_up(self, daemon: MpsDaemon) -> None:
        """Start the daemon, or only set its limits, as needed; the lock is held."""
        self._serving = None
        process = self._running_process()
        if process and (not process.serves(daemon) or self._removes_limit(daemon)):
            self._tell("it is ended, to be started with other settings")
            self._end(process)
            process = None
        if self._wanted != daemon:
            # On the disk before the start: after a crash, the next supervisor knows what to run.
            self._folder.write(daemon)
            self._wanted = daemon
        if process is None:
            self._tell("it is being started")
            self._start(daemon)
        else:
            self._control.set_limits(daemon, time.monotonic() + self._site.command_seconds)
        # Only now: a client that came before the limits would have none.
        self._folder.let_clients_in()
        self._serving = daemon
        self._tell(running=True)

    def _running_process(self) -> DaemonProcess | None:
        """The daemon's process, None if it does not run."""
        if self._process and self._process.has_ended():
            self._process = None
        return self._process

    def _removes_limit(self, daemon: MpsDaemon) -> bool:
        """Whether a memory limit is to be removed, for which MPS has no command."""
        before = self._wanted.pinned_memory_mib if self._wanted else ()
        after = daemon.pinned_memory_mib
        return any(mib and not any(after[place : place + 1]) for place, mib in enumerate(before))

    def _start(self, daemon: MpsDaemon) -> None:
        # Also a daemon that an earlier supervisor has left.
        processes.end_left_over(self._folder.pipes)
        refuse_foreign_daemon(daemon, self._site.proc)
        self._site.memory.make(self._folder)
        self._folder.make_ready()
        deadline = time.monotonic() + self._site.start_seconds
        process = start_daemon(self._site.programs, self._folder, daemon, self._site.memory, self._died)
        try:
            self._wait_until_it_serves(process, daemon, deadline)
        except BaseException:
            # Also when the supervisor is interrupted: the daemon is in no record yet.
            process.end(0)
            processes.end_left_over(self._folder.pipes)
            raise
        _log.info("MPS daemon started", daemon=self.name, pid=process.pid, devices=daemon.devices)
        self._process = process

    def _wait_until_it_serves(self, process: DaemonProcess, daemon: MpsDaemon, deadline: float) -> None:
        """Set the limits as soon as it answers; raises ClaimBlocked if it ends or is too late."""
        while not process.ended.wait(LOOK_SECONDS):
            if time.monotonic() > deadline:
                why = f"it did not answer within {self._site.start_seconds:.0f} s"
                raise self._no_start(why, StartHangs)
            if self._folder.control_socket.is_socket():
                try:
                    self._control.set_limits(daemon, deadline)
                    return
                except NoDaemon:
                    continue  # it has bound its socket but does not listen yet, or it has ended
        raise self._no_start("it ended at once")

    def _no_start(self, why: str, kind: type[ClaimBlocked] = ClaimBlocked) -> ClaimBlocked:
        return kind(
            f"the MPS daemon {self.name} did not start: {why}{self._said()}",
            "it is tried again; fix what it reports",
        )

    def _said(self) -> str:
        words = self._folder.last_words()
        return f", and said: {words}" if words else ""

    def _died(self, process: DaemonProcess) -> None:
        with self._lock:
            if self._process is not process:
                return
            lived_seconds = time.monotonic() - process.since
            self._process = self._serving = None
            if self._wanted is not None:
                # One that ran for a while starts again at once; one that dies at each start waits longer.
                if lived_seconds > LAST_BACK_OFF_SECONDS:
                    self._failures = 0
                words = self._folder.last_words()
                said = f", and said: {words}" if words else ""
                self._try_later(
                    ClaimBlocked(
                        f"the MPS daemon {self.name} {process.how_it_ended()}{said}", "it is started again"
                    )
                )

    def _try_later(self, error: DriverError) -> None:
        """Report why it does not serve, and try again after a delay that doubles each time."""
        self._tell(f"{error.what}: {error.way_out}")
        delay = min(FIRST_BACK_OFF_SECONDS * 2 ** min(self._failures, 30), LAST_BACK_OFF_SECONDS)
        if not self._trying_later:
            self._trying_later = True
            self._failures += 1
            _log.warning("MPS daemon does not serve", daemon=self.name, error=str(error), again_seconds=delay)
            self._callbacks.later(delay, self._try_again)

    def _try_again(self) -> None:
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

    def _end_for_good(self) -> None:
        """End the daemon and remove everything of it; this keeper is not used again."""
        self._serving = self._wanted = None
        self._tell("it is being ended")
        process = self._running_process()
        if process:
            self._end(process)
        processes.end_left_over(self._folder.pipes)
        self._site.memory.remove(self._folder)
        self._folder.remove()
        self._retired = True
        self.state = None
        self._callbacks.retired(self)

    def _end(self, process: DaemonProcess) -> None:
        """Ask the daemon to quit, and kill it if it does not; raises ClaimBlocked if it survives that."""
        seconds = self._site.quit_seconds
        try:
            self._control.quit(seconds, seconds + self._site.end_seconds)
        except DriverError as error:
            _log.warning("MPS daemon did not quit", daemon=self.name, error=str(error))
        process.end(self._site.end_seconds)
        self._process = self._serving = None
        processes.end_left_over(self._folder.pipes)


def refuse_foreign_daemon(daemon: MpsDaemon, proc: Path) -> None:
    """Check that no other daemon on the node serves, or may serve, a device of this one.

    Two daemons cannot both have a GPU in compute mode EXCLUSIVE_PROCESS: the clients of one would fail.
    Raises ClaimBlocked, naming the other daemon and how to end it.
    """
    # A process that only looks like a daemon must not keep ours from starting, so those without rights over
    # the node are skipped (see processes.py).
    others = [process for process in processes.mps_processes(proc) if process.is_privileged]
    for other in processes.daemons(others):
        how = _serves(other, daemon.devices)
        # A UUID names the GPU for certain. Otherwise the other daemon serves it only if it can open its
        # node, which a daemon in a container may not have.
        if how is not None and (how.startswith("serves GPU-") or _reaches(other, daemon.devices, proc)):
            command = f"echo quit | {processes.PIPE_DIRECTORY}={other.pipes} {CONTROL}"
            raise ClaimBlocked(
                f"another MPS control daemon {how}: process {other.pid}, pipe directory {other.pipes}",
                f"end it ({command}), or keep it away from the GPU",
            )


def _serves(other: processes.MpsProcess, devices: tuple[str, ...]) -> str | None:
    """How another daemon serves one of the devices, None if it serves only others."""
    if other.environment is None:
        return "may serve the same GPU, but its environment cannot be read"
    if other.devices is None:
        return "serves all GPUs that it sees"
    for word in other.devices:
        named = next((device for device in devices if device.startswith(word)), None)
        # CUDA_VISIBLE_DEVICES may have the beginning of a UUID in place of the whole.
        if named is not None and word.startswith(("GPU-", "MIG-")):
            return f"serves {named}"
        # An ordinal depends on what that daemon sees, which is not known here.
        if word.isdigit():
            return f"may serve the same GPU: its {processes.VISIBLE_DEVICES} is {','.join(other.devices)}"
    return None


def _reaches(other: processes.MpsProcess, devices: tuple[str, ...], proc: Path) -> bool:
    """Whether the other process sees a device node of one of the devices; yes if unknown."""
    minors = _minors(proc)
    # A MIG device has no entry there.
    if not all(device in minors for device in devices):
        return True
    # /proc/PID/root is the file system as that process sees it.
    nodes = (proc / str(other.pid) / "root" / "dev" / f"nvidia{minors[device]}" for device in devices)
    try:
        return any(node.exists() for node in nodes)
    except OSError:
        return True


def _minors(proc: Path) -> dict[str, int]:
    """The minor numbers of the GPUs by UUID, from the NVIDIA driver's files; empty without them."""
    minors = {}
    for file in (proc / "driver" / "nvidia" / "gpus").glob("*/information"):
        try:
            text = file.read_text(errors="replace")
        except OSError:  # it has left the bus since
            continue
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            minors[uuid[1]] = int(minor[1])
    return minors
