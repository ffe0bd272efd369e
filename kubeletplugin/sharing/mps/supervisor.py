"""The MPS supervisor and its gRPC service: it runs all control daemons of a node, and reports their state."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from driver.errors import ClaimBlocked, ConfigError, DriverError
from driver.process.log import get_logger, operation
from driver.process.probes import Probes
from driver.process.pulse import Pulse
from driver.process.service import Service
from kubeletplugin.kubelet.wire.mps_daemon import PROTOCOL, MpsDaemon, MpsStates, checked_daemon, checked_name
from kubeletplugin.kubelet.wire.self_check import MPS_WATCH, SelfCheck
from kubeletplugin.kubelet.wire.server import stream_method, unary_method
from kubeletplugin.kubelet.wire.streams import Published, StreamCall, TooManyStreams
from kubeletplugin.sharing.mps.daemon_keeper import Callbacks, DaemonKeeper, Retired, Site, StartHangs
from kubeletplugin.sharing.mps.folders import known_names, make_folder
from proto import mps_v1_pb2 as v1

RESEND_SECONDS = 10.0
LIBRARIES = ".libraries"
"""The folder with libraries for its programs, in the supervisor's folder; no daemon's name has a dot."""

_LOCK = ".lock"

_log = get_logger(__name__)


class Supervisor:
    """Runs the requested daemons, each behind a lock of its own.

    Its daemons end with its container. Without daemons, it removes its files.
    """

    def __init__(self, site: Site, service: Service) -> None:
        """Lock the folder, and run the daemons of an earlier supervisor anew.

        Raises ConfigError if another supervisor has the folder or it cannot be used, StorageError if a record
        cannot be read.
        """
        self._site = site
        self._guard = threading.Lock()
        self._keepers: dict[str, DaemonKeeper] = {}
        self._states: Published[MpsStates | None] = Published(None)
        site.memory.check(site.mps_dir)
        self._lock = _lock_folder(site.mps_dir)
        service.on_stop("folder of MPS", self._release_folder)
        self._pulse = service.pulse
        self._closing = threading.Event()
        service.on_stop("restarts of MPS daemons", self._closing.set)
        self._callbacks = Callbacks(self._later, self._publish, self._retired)
        for name in known_names(site.mps_dir):
            self._keepers[name] = DaemonKeeper(name, site, self._callbacks)
        for keeper in list(self._keepers.values()):
            keeper.recover()
        self._publish()

    def ensure(self, daemon: MpsDaemon, timeout_seconds: float) -> MpsStates:
        """Run the daemon with these settings; returns the states of all daemons, of which this one serves.

        Raises as DaemonKeeper.ensure, and ClaimRefused and ConfigError.
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

    def _release_folder(self) -> None:
        """Unlock the folder; if no daemon is left, remove everything in it."""
        try:
            if not known_names(self._site.mps_dir):
                # The lock file is removed last: it keeps the next supervisor out meanwhile.
                for name in (LIBRARIES, _LOCK):
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
                    keeper = self._keepers[name] = DaemonKeeper(name, self._site, self._callbacks)
            # A keeper that was stopped meanwhile is out of the table by now, so the next round makes one.
            with suppress(Retired):
                do(keeper, deadline - time.monotonic())
                return

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        def run() -> None:
            if not self._closing.is_set():
                with operation("mps-restart"), self._pulse.work("mps-restart"):
                    work()

        timer = threading.Timer(seconds, run)
        timer.daemon = True
        timer.start()

    def _retired(self, keeper: DaemonKeeper) -> None:
        with self._guard:
            if self._keepers.get(keeper.name) is keeper:
                del self._keepers[keeper.name]
        self._publish()

    def _publish(self) -> None:
        # Under the lock, so that an older list is not published after a newer one.
        with self._guard:
            states = (keeper.state for keeper in self._keepers.values())
            known = (state for state in states if state is not None)
            daemons = tuple(sorted(known, key=lambda state: state.name))
            if self._states.value is None or daemons != self._states.value.daemons:
                self._states.publish(MpsStates(daemons, time.monotonic_ns()))


def _lock_folder(mps_dir: Path) -> int:
    """Make the folder and lock it; returns the descriptor that holds the lock. Raises ConfigError."""
    while True:
        try:
            make_folder(mps_dir)
            descriptor = os.open(mps_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot use the folder {mps_dir}: {error.strerror}",
                "set --mps-dir to a folder that the supervisor may write to",
            ) from error
        try:
            # The kernel releases this lock when the process ends. The daemons do not get the descriptor, so
            # they do not keep it.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ConfigError(
                f"another MPS supervisor uses the folder {mps_dir}",
                "end it, or give this one another --mps-dir",
            ) from error
        if _is_still(descriptor, mps_dir / _LOCK):
            return descriptor
        # The previous supervisor has just removed the file. A lock on it would not keep others out.
        os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a file or a folder; a failure does no harm and is only logged."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("cannot remove a file of the supervisor", path=str(path), error=error.strerror)


def probes_of(supervisor: Supervisor, socket: Path, pulse: Pulse) -> Probes:
    """Started with its socket, and ready while threads and server answer and all daemons run.

    It is always alive: a restart of the container would end all daemons, and with them the work of all pods
    that share a GPU by MPS. A supervisor that hangs is a pod that is not ready, and an event of the kubelet.
    """
    server = SelfCheck(socket, MPS_WATCH)

    def ready() -> str:
        down = [one for one in supervisor.states().daemons if not one.running]
        return (
            pulse.hung()
            or server.why_not()
            or "; ".join(f"the MPS daemon {one.name} does not run: {one.message}" for one in down)
        )

    return Probes(lambda: "", lambda: "", ready)


MPS_V1 = "gpu.nvidia.com.mps.v1.Mps"

WITHOUT_DEADLINE_SECONDS = 20.0
"""How long a call without a deadline may wait for others."""


def handlers(supervisor: Supervisor) -> tuple[grpc.GenericRpcHandler, ...]:
    """The handlers of the supervisor's gRPC service.

    A permanent error is FAILED_PRECONDITION, a retryable one ABORTED. UNAVAILABLE is left to gRPC itself, for
    a supervisor that does not answer. The details are what happened and the way out.
    """

    def ensure(request: v1.Daemon, context: grpc.ServicerContext) -> v1.EnsureResponse:
        with _answered(context, "ensure", request.name):
            refuse_newer(request)
            states = supervisor.ensure(daemon_of(request), _seconds(context))
        return v1.EnsureResponse(state=answer(states))

    def stop(request: v1.StopRequest, context: grpc.ServicerContext) -> v1.StopResponse:
        with _answered(context, "stop", request.name):
            supervisor.stop(request.name, _seconds(context))
        return v1.StopResponse()

    def watch(_request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.State]:
        try:
            yield from map(answer, supervisor.follow(context))
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches of the MPS daemons are open")

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Ensure": unary_method(ensure, v1.Daemon, v1.EnsureResponse),
        "Stop": unary_method(stop, v1.StopRequest, v1.StopResponse),
        "Watch": stream_method(watch, v1.WatchRequest, v1.State),
    }
    return (grpc.method_handlers_generic_handler(MPS_V1, methods),)


def daemon_of(request: v1.Daemon) -> MpsDaemon:
    """The requested daemon, not checked yet."""
    return MpsDaemon(
        name=request.name,
        devices=tuple(request.devices),
        multi_user=request.multi_user,
        active_thread_percentage=request.active_thread_percentage,
        pinned_memory_mib=tuple(request.pinned_memory_mib),
    )


def refuse_newer(request: v1.Daemon) -> None:
    """Raise ClaimBlocked if the request is of a newer protocol than this supervisor's."""
    # The plugin may be updated before the supervisor, which nobody restarts while pods use its daemons.
    if request.protocol > PROTOCOL:
        raise ClaimBlocked(
            f"the kubelet plugin speaks version {request.protocol} of the MPS protocol, but this MPS "
            f"supervisor supports at most {PROTOCOL}",
            "delete the supervisor's pod, so that it is updated; this ends the work of its clients",
        )


def answer(states: MpsStates) -> v1.State:
    """The states as a message."""
    daemons = [
        v1.DaemonState(name=one.name, running=one.running, message=one.message) for one in states.daemons
    ]
    return v1.State(daemons=daemons, told_ns=states.told_ns)


@contextmanager
def _answered(context: grpc.ServicerContext, name: str, daemon: str) -> Iterator[None]:
    """Log the call, and end it with a status if it fails."""
    try:
        with operation(name, daemon=daemon):
            yield
    except DriverError as error:
        code = grpc.StatusCode.ABORTED if error.retryable else grpc.StatusCode.FAILED_PRECONDITION
        if isinstance(error, StartHangs):
            code = grpc.StatusCode.INTERNAL
        context.abort(code, f"{error.what}: {error.way_out}" if error.way_out else error.what)
    except OSError as error:
        context.abort(grpc.StatusCode.ABORTED, f"{error}: it is tried again; see the supervisor's log")


def _seconds(context: grpc.ServicerContext) -> float:
    remaining: float | None = context.time_remaining()
    return WITHOUT_DEADLINE_SECONDS if remaining is None else min(remaining, WITHOUT_DEADLINE_SECONDS)
