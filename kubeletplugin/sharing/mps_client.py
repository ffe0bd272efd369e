"""Has the MPS supervisor of this node run and end control daemons, and follows their states.

Nothing is contacted before the first use: a node that shares nothing by MPS needs no supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from driver.errors import ClaimBlocked, ClaimError, ClaimRefused
from driver.process.log import get_logger
from kubeletplugin.kubelet.wire.mps_daemon import PROTOCOL, MpsDaemon, MpsState
from proto import mps_v1_pb2 as v1

if TYPE_CHECKING:
    from google.protobuf.message import Message

METHODS = "/gpu.nvidia.com.mps.v1.Mps"
CALL_SECONDS = 20.0
"""Longer than a daemon has to start, and than one has to end."""

FIRST_AGAIN_SECONDS, LAST_AGAIN_SECONDS = 0.2, 5.0
"""How long after a broken stream the states are asked for again, doubling from the first to the last."""

_OPTIONS = [
    # A supervisor that has just come up is found at once: gRPC waits up to two minutes by itself.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # else channels to one socket share their waiting
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
        self._stop = threading.Event()
        self._telling = threading.Lock()
        self._told_ns = 0
        self._update: Callable[[tuple[MpsState, ...] | None], object] = lambda _states: None

    def ensure(self, daemon: MpsDaemon) -> None:
        """Have the daemon run just so; returns once it serves and its limits were read back.

        Whoever follows has heard of it by then: the stream may be late.

        Raises ClaimRefused for a daemon that can never be, else ClaimBlocked: a missing program can still
        be installed, and a supervisor still be started.
        """
        request = v1.Daemon(
            name=daemon.name,
            devices=daemon.devices,
            multi_user=daemon.multi_user,
            active_thread_percentage=daemon.active_thread_percentage,
            pinned_memory_mib=daemon.pinned_memory_mib,
            protocol=PROTOCOL,
        )
        self._tell(self._call("Ensure", request, v1.EnsureResponse).state)

    def stop(self, name: str) -> None:
        """Have the daemon and its servers end; one that does not run is fine. Raises as ``ensure``."""
        self._call("Stop", v1.StopRequest(name=name), v1.StopResponse)

    def known(self) -> tuple[str, ...]:
        """The names of the daemons that the supervisor looks after; raises ClaimBlocked."""
        stream = self._open().unary_stream(
            f"{METHODS}/Watch",
            request_serializer=v1.WatchRequest.SerializeToString,
            response_deserializer=v1.State.FromString,
        )
        try:
            told = stream(v1.WatchRequest(), timeout=self._call_seconds)
            first: v1.State = next(told)
            told.cancel()
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except StopIteration as error:
            raise ClaimBlocked("the MPS supervisor told nothing", "see its log") from error
        except ValueError as error:
            raise _stopping() from error
        return tuple(daemon.name for daemon in first.daemons)

    def follow(self, update: Callable[[tuple[MpsState, ...] | None], object]) -> None:
        """Call ``update`` with the states of all daemons whenever they are told, until ``close``.

        None when the supervisor does not answer, so that nobody knows. For a thread of its own. Calls come
        from the threads that have daemons run, too, one at a time, and never with an older state than before.
        """
        with self._telling:
            self._update = update
        failures = 0
        while not self._stop.is_set():
            try:
                for told in self._watch():
                    failures = 0
                    self._tell(told)
                why = "it ended the stream"
            except grpc.RpcError as error:
                why = _details(error)
            except ClaimBlocked:  # closed meanwhile
                return
            if self._stop.is_set():
                return
            if failures == 0:
                _log.warning("MPS supervisor does not tell", socket=str(self._socket), error=why)
                with self._telling:
                    update(None)
            self._stop.wait(min(FIRST_AGAIN_SECONDS * 2 ** min(failures, 30), LAST_AGAIN_SECONDS))
            failures += 1

    def close(self) -> None:
        """End ``follow``, and the connection."""
        self._stop.set()
        with self._lock:
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()

    def _tell(self, told: v1.State) -> None:
        """Pass a state on, unless a newer one was passed: answers and the stream may overtake each other."""
        states = tuple(MpsState(one.name, one.running, one.message) for one in told.daemons)
        with self._telling:
            if told.told_ns >= self._told_ns:
                self._told_ns = told.told_ns
                self._update(states)

    def _watch(self) -> Iterator[v1.State]:
        stream = self._open().unary_stream(
            f"{METHODS}/Watch",
            request_serializer=v1.WatchRequest.SerializeToString,
            response_deserializer=v1.State.FromString,
        )
        try:
            states: Iterator[v1.State] = stream(v1.WatchRequest())
        except ValueError as error:
            raise _stopping() from error
        return states

    def _call(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        """Raises ClaimRefused or ClaimBlocked."""
        try:
            try:
                return self._ask(self._open(), method, request, answer)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
            # The connection may only be waiting to be tried again, and a repeated call does no harm.
            with grpc.insecure_channel(f"unix:{self._socket}", _OPTIONS) as fresh:
                return self._ask(fresh, method, request, answer)
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except ValueError as error:  # gRPC's word for a channel that was closed
            raise _stopping() from error

    def _ask(self, channel: grpc.Channel, method: str, request: Message, answer: type[Answer]) -> Answer:
        ask = channel.unary_unary(
            f"{METHODS}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        done: Answer = ask(request, timeout=self._call_seconds)
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
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            return ClaimRefused(_details(error))
        if code == grpc.StatusCode.ABORTED:
            return ClaimBlocked(_details(error))
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return ClaimBlocked(
                f"the MPS supervisor did not answer within {self._call_seconds:.0f} s",
                "it is asked again; its log says what takes so long",
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            return ClaimBlocked(
                f"no MPS supervisor answers at {self._socket}",
                "start it (gpu-dra-mps), and see that both have the same --mps-dir",
            )
        return ClaimBlocked(
            f"the MPS supervisor failed: {code.name}: {_details(error)}", "see its log and report it"
        )


def _stopping() -> ClaimBlocked:
    return ClaimBlocked("the plugin is stopping", "nothing: the kubelet asks again")


def _details(error: grpc.RpcError) -> str:
    return str(error.details())
