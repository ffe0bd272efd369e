"""Asks the MPS supervisor of this node to run and end control daemons, and follows their states.

It connects at the first use: a node that shares nothing by MPS needs no supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from driver.errors import ClaimBlocked, ClaimError, ClaimRefused
from driver.process.log import get_logger
from kubeletplugin.devices.host.driver_programs import ProgramHangs
from kubeletplugin.kubelet.wire.claim_call import left_of_call
from kubeletplugin.kubelet.wire.mps_daemon import PROTOCOL, MpsDaemon, MpsState
from proto import mps_v1_pb2 as v1

if TYPE_CHECKING:
    from google.protobuf.message import Message

METHODS = "/gpu.nvidia.com.mps.v1.Mps"
CALL_SECONDS = 20.0
"""Longer than the supervisor lets a daemon take to start, or to end."""

FIRST_AGAIN_SECONDS, LAST_AGAIN_SECONDS = 0.2, 5.0
"""The first and the longest pause before a broken stream is opened again; it doubles in between."""

_OPTIONS = [
    # By default gRPC waits up to two minutes before it tries a failed connection again. A supervisor that has
    # just started is to be found at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # By default all channels of a process to one address share a connection, and with it the pause before the
    # next try. The second channel of _call() would then not try at once.
    ("grpc.use_local_subchannel_pool", 1),
]
_log = get_logger(__name__)
Answer = TypeVar("Answer", bound="Message")


class MpsClient:
    """The supervisor behind one socket, ``<mps-dir>/supervisor.sock``; safe to use from every thread."""

    def __init__(self, socket: Path, call_seconds: float = CALL_SECONDS) -> None:
        self._socket = socket.absolute()
        self._call_seconds = call_seconds
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._used = threading.Event()
        self._stop = threading.Event()
        self._report_lock = threading.Lock()
        self._newest_ns = 0
        self._update: Callable[[tuple[MpsState, ...] | None], object] = lambda _states: None

    def ensure(self, daemon: MpsDaemon) -> None:
        """Have the daemon run with these settings; returns once it serves and its limits were read back.

        The function given to ``follow`` has been called with the new state by then. Raises ClaimRefused for
        a daemon that can never run, ProgramHangs if the supervisor or the start of the daemon hangs, else
        ClaimBlocked: a missing program can still be installed, and the supervisor be started.
        """
        request = v1.Daemon(
            name=daemon.name,
            devices=daemon.devices,
            multi_user=daemon.multi_user,
            active_thread_percentage=daemon.active_thread_percentage,
            pinned_memory_mib=daemon.pinned_memory_mib,
            protocol=PROTOCOL,
        )
        # From the answer, since the stream may deliver the same state later.
        self._report(self._call("Ensure", request, v1.EnsureResponse).state)

    def stop(self, name: str) -> None:
        """Have the daemon and its servers end, if it runs. Raises as ``ensure``."""
        self._call("Stop", v1.StopRequest(name=name), v1.StopResponse)

    def known(self) -> tuple[str, ...]:
        """The names of the supervisor's daemons; raises ClaimBlocked."""
        try:
            stream = self._watch(self._call_seconds)
            # The supervisor sends the present state first, then each change.
            first: v1.State = next(stream)
            stream.cancel()
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except StopIteration as error:
            raise ClaimBlocked("the MPS supervisor sent no state", "see its log") from error
        return tuple(daemon.name for daemon in first.daemons)

    def note_use(self) -> None:
        """Note that the supervisor is used from now on. Calling it again costs almost nothing."""
        self._used.set()

    def wait_for_use(self) -> bool:
        """Wait until the supervisor is used, or until ``close``; returns whether it is used."""
        self._used.wait()
        return not self._stop.is_set()

    def follow(self, update: Callable[[tuple[MpsState, ...] | None], object]) -> None:
        """Call ``update`` with the states of all daemons, now and at each change, until ``close``.

        It gets None if the supervisor does not answer. Needs a thread of its own. ``update`` is also called
        by the threads that call ``ensure``, one at a time, and never with an older state than before.
        """
        with self._report_lock:
            self._update = update
        failures = 0
        while not self._stop.is_set():
            try:
                for state in self._watch():
                    failures = 0
                    self._report(state)
                why = "it ended the stream"
            except grpc.RpcError as error:
                why = _details(error)
            # close() was called meanwhile.
            except ClaimBlocked:
                return
            if self._stop.is_set():
                return
            if failures == 0:
                _log.warning("cannot follow the MPS supervisor", socket=str(self._socket), error=why)
                with self._report_lock:
                    update(None)
            self._stop.wait(min(FIRST_AGAIN_SECONDS * 2 ** min(failures, 30), LAST_AGAIN_SECONDS))
            failures += 1

    def close(self) -> None:
        """End ``follow``, and the connection."""
        self._stop.set()
        self._used.set()
        with self._lock:
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()

    def _report(self, state: v1.State) -> None:
        """Pass a state on, unless a newer one was: the stream and the answers of ``ensure`` race."""
        states = tuple(MpsState(one.name, one.running, one.message) for one in state.daemons)
        with self._report_lock:
            # Times of one clock, CLOCK_MONOTONIC of the node, so also comparable after the supervisor
            # restarts.
            if state.told_ns >= self._newest_ns:
                self._newest_ns = state.told_ns
                self._update(states)

    def _watch(self, timeout_seconds: float | None = None) -> Any:
        """The stream of states: an iterator with ``cancel``. Raises ClaimBlocked after ``close``."""
        watch = self._open().unary_stream(
            f"{METHODS}/Watch",
            request_serializer=v1.WatchRequest.SerializeToString,
            response_deserializer=v1.State.FromString,
        )
        try:
            return watch(v1.WatchRequest(), timeout=timeout_seconds)
        # gRPC raises this for a channel that was closed.
        except ValueError as error:
            raise _stopping() from error

    def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Call the supervisor, a second time if it cannot be reached; raises ClaimRefused, ClaimBlocked."""
        try:
            try:
                return self._ask(self._open(), method, request, answer)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
            # The channel may only be waiting before it connects again; a new one connects at once. Both calls
            # of the supervisor can be repeated.
            with grpc.insecure_channel(f"unix:{self._socket}", _OPTIONS) as fresh:
                return self._ask(fresh, method, request, answer)
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except ValueError as error:
            raise _stopping() from error

    def _ask(self, channel: grpc.Channel, method: str, request: Message, answer: type[Answer]) -> Answer:
        call = channel.unary_unary(
            f"{METHODS}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        done: Answer = call(request, timeout=left_of_call(self._call_seconds))
        return done

    def _open(self) -> grpc.Channel:
        with self._lock:
            if self._stop.is_set():
                raise _stopping()
            if self._channel is None:
                self._channel = grpc.insecure_channel(f"unix:{self._socket}", _OPTIONS)
            return self._channel

    def _translated(self, error: grpc.RpcError) -> ClaimError:
        code = error.code()
        # The codes by which the supervisor passes on its own ClaimRefused, ClaimBlocked and StartHangs.
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            return ClaimRefused(_details(error))
        if code == grpc.StatusCode.ABORTED:
            return ClaimBlocked(_details(error))
        if code == grpc.StatusCode.INTERNAL:
            return ProgramHangs(_details(error))
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return ProgramHangs(
                "the MPS supervisor did not answer in time", "it is tried again; see the supervisor's log"
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            return ClaimBlocked(
                f"no MPS supervisor answers at {self._socket}",
                "start it (gpu-dra-mps), and check that both have the same --mps-dir",
            )
        return ClaimBlocked(
            f"the MPS supervisor failed: {code.name}: {_details(error)}", "see its log and report it"
        )


def _stopping() -> ClaimBlocked:
    return ClaimBlocked("the plugin is stopping", "nothing to do: the kubelet asks again")


def _details(error: grpc.RpcError) -> str:
    return str(error.details())
