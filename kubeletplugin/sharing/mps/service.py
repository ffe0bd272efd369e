"""The supervisor's gRPC service, on a unix socket of the node.

A permanent error is FAILED_PRECONDITION, a retryable one ABORTED. UNAVAILABLE is left to gRPC itself, for a
supervisor that does not answer. The details are what happened and the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from driver.errors import ClaimBlocked, DriverError
from driver.process.log import operation
from kubeletplugin.kubelet.wire.mps_daemon import PROTOCOL, MpsDaemon, MpsStates
from kubeletplugin.kubelet.wire.server import stream_method, unary_method
from kubeletplugin.kubelet.wire.streams import TooManyStreams
from kubeletplugin.sharing.mps.daemon_keeper import StartHangs
from kubeletplugin.sharing.mps.supervisor import Supervisor
from proto import mps_v1_pb2 as v1

MPS_V1 = "gpu.nvidia.com.mps.v1.Mps"

WITHOUT_DEADLINE_SECONDS = 20.0
"""How long a call without a deadline may wait for others."""


def handlers(supervisor: Supervisor) -> tuple[grpc.GenericRpcHandler, ...]:
    """The handlers of the service."""

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
