"""The MPS supervisor: runs all control daemons of a node, says how they are, and watches over itself."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from driver.errors import ConfigError
from driver.process.log import get_logger, operation
from driver.process.probes import Probes
from driver.process.pulse import Pulse
from driver.process.service import Service
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, MpsStates, checked_daemon, checked_name
from kubeletplugin.kubelet.wire.self_check import MPS_WATCH, SelfCheck
from kubeletplugin.kubelet.wire.streams import Published, StreamCall
from kubeletplugin.sharing.mps.alarms import Alarms
from kubeletplugin.sharing.mps.daemon_keeper import DaemonKeeper, Retired, Site, Ties
from kubeletplugin.sharing.mps.folders import known_names, make_folder

RESTART_WORKERS = 16
"""Daemons that are started again at the same time, one for each GPU of the largest machine."""

RESEND_SECONDS = 10.0
LIBRARIES = ".libraries"
"""Below the supervisor's folder, what its programs are given; no daemon's name begins so."""

_LOCK = ".lock"

LOOK_SECONDS = 10.0
LOOKS = 3
"""The watchdog restarts a supervisor that so many looks in a row find hanging, as a kubelet's probe would."""

_log = get_logger(__name__)


class Supervisor:
    """Runs daemons as they were asked for, each behind a lock of its own.

    Its end leaves them running, for the next one to adopt; where there is none, its files go.
    """

    def __init__(self, site: Site, service: Service) -> None:
        """Take the folder and what earlier supervisors left there.

        Raises ConfigError when another supervisor has it or it cannot be used, StorageError when a record
        cannot be read.
        """
        self._site = site
        self._guard = threading.Lock()
        self._keepers: dict[str, DaemonKeeper] = {}
        self._states: Published[MpsStates | None] = Published(None)
        site.memory.check(site.mps_dir)
        self._lock = _take(site.mps_dir)
        service.on_stop("folder of MPS", self._leave)
        alarms = Alarms(lambda: service.pulse.work("mps-alarms"))
        restarts = service.pool("mps-restart", RESTART_WORKERS)
        service.spawn("mps-alarms", alarms.run, alarms.close)
        self._ties = Ties(
            alarms, lambda work: _soon(restarts, service.pulse, work), self._publish, self._retired
        )
        for name in known_names(site.mps_dir):
            self._keepers[name] = DaemonKeeper(name, site, self._ties)
        for keeper in list(self._keepers.values()):
            keeper.recover()
        self._publish()

    def ensure(self, daemon: MpsDaemon, timeout_seconds: float) -> MpsStates:
        """Have the daemon run just so; see DaemonKeeper.ensure. Also raises ClaimRefused and ConfigError.

        The states of all daemons now, of which this one serves.
        """
        checked_daemon(daemon)
        self._with_keeper(daemon.name, timeout_seconds, lambda keeper, left: keeper.ensure(daemon, left))
        return self.states()

    def stop(self, name: str, timeout_seconds: float) -> None:
        """End the daemon; see DaemonKeeper.stop. Also raises ClaimRefused."""
        self._with_keeper(checked_name(name), timeout_seconds, lambda keeper, left: keeper.stop(left))

    def follow(self, call: StreamCall, resend_seconds: float = RESEND_SECONDS) -> Iterator[MpsStates]:
        """The states of all daemons, at once, at each change and at intervals; raises TooManyStreams."""
        return (states for states in self._states.follow(call, resend_seconds) if states is not None)

    def states(self) -> MpsStates:
        """The states of all daemons now."""
        return self._states.value or MpsStates((), 0)

    def close(self) -> None:
        """End all streams, when the supervisor stops."""
        self._states.close()

    def _leave(self) -> None:
        """Let the folder go; without a daemon, nothing is left in it."""
        try:
            if not known_names(self._site.mps_dir):
                for name in (LIBRARIES, _LOCK):  # the lock last, which keeps the next supervisor out
                    _remove(self._site.mps_dir / name)
        finally:
            os.close(self._lock)

    def _with_keeper(
        self, name: str, timeout_seconds: float, do: Callable[[DaemonKeeper, float], None]
    ) -> None:
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._guard:
                keeper = self._keepers.get(name)
                if keeper is None:
                    keeper = self._keepers[name] = DaemonKeeper(name, self._site, self._ties)
            with suppress(Retired):
                do(keeper, deadline - time.monotonic())
                return

    def _retired(self, keeper: DaemonKeeper) -> None:
        with self._guard:
            if self._keepers.get(keeper.name) is keeper:
                del self._keepers[keeper.name]
        self._publish()

    def _publish(self) -> None:
        with self._guard:  # so that no older look is told after a newer one
            states = (keeper.state for keeper in self._keepers.values())
            known = (state for state in states if state is not None)
            daemons = tuple(sorted(known, key=lambda state: state.name))
            if self._states.value is None or daemons != self._states.value.daemons:
                self._states.publish(MpsStates(daemons, time.monotonic_ns()))


def _soon(executor: Executor, pulse: Pulse, work: Callable[[], None]) -> None:
    def logged() -> None:
        with operation("mps-restart"), pulse.work("mps-restart"):
            work()

    with suppress(RuntimeError):  # the supervisor is stopping, and the next one does it
        executor.submit(logged)


def _take(mps_dir: Path) -> int:
    """Make the folder and lock it for as long as this process lives; raises ConfigError."""
    while True:
        try:
            make_folder(mps_dir)
            descriptor = os.open(mps_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"the folder {mps_dir} cannot be used: {error.strerror}",
                "give --mps-dir a folder to write to",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ConfigError(
                f"another MPS supervisor has the folder {mps_dir}",
                "end it, or give this one another --mps-dir",
            ) from error
        if _is_still(descriptor, mps_dir / _LOCK):
            return descriptor
        os.close(descriptor)  # the supervisor before removed it just now: it locks nobody out


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a file or a folder; what cannot be removed harms nobody, and is logged."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("file of the supervisor stays", path=str(path), error=error.strerror)


def probes_of(supervisor: Supervisor, socket: Path, pulse: Pulse) -> Probes:
    """Started with its socket, alive while threads and server answer, ready when daemons run as asked."""
    server = SelfCheck(socket, MPS_WATCH)

    def ready() -> str:
        down = [one for one in supervisor.states().daemons if not one.running]
        return "; ".join(f"the MPS daemon {one.name} does not run: {one.message}" for one in down)

    return Probes(lambda: "", lambda: pulse.hung() or server.why_not(), ready)


class Watchdog:
    """Restarts a supervisor that hangs, in place: ``why_not`` says why it is not alive, empty if it is.

    A kubelet that restarts the container ends every process in it, and with the daemons the work of all pods
    that share a GPU by MPS. So no probe may do that. The process replaces itself instead (execve(2)): its id,
    its control group and its children stay, and the new supervisor adopts the daemons as after any other
    start.
    """

    def __init__(self, why_not: Callable[[], str], start_anew: Callable[[], object]) -> None:
        self._why_not = why_not
        self._start_anew = start_anew
        self._bad_looks = 0

    def look(self) -> None:
        """Look once, and start anew when it has hung for long enough."""
        why_not = self._why_not()
        self._bad_looks = self._bad_looks + 1 if why_not else 0
        if self._bad_looks >= LOOKS:
            _log.error("the supervisor hangs and is started anew; its daemons go on", reason=why_not)
            self._start_anew()


def watch(service: Service, why_not: Callable[[], str]) -> None:
    """Look at intervals for as long as the service lives."""
    service.repeat("watchdog", LOOK_SECONDS, Watchdog(why_not, start_anew).look)


def start_anew() -> None:
    """Replace this process by a new one of the same command; what it has open is closed."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the command that runs already
