"""Asks at sockets of the node: the kubelet plugin for its health, the MPS supervisor for its daemons."""

from __future__ import annotations

from pathlib import Path

import grpc

from gpuctl.cli.unread import Unread
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from proto import grpc_health_v1_pb2 as health
from proto import mps_v1_pb2 as mps

SERVES = "serves, and is registered with the kubelet"
NOT_REGISTERED = "runs but does not serve: it is not registered with the kubelet, or a part of it is not up"
ALIVE_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
TIMEOUT_SECONDS = 3.0
# Without its own pool a channel shares its connection, and its waiting, with others to the same address.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]


def plugin_health(socket: Path) -> str:
    """The state of the plugin at a socket: ``SERVES``, ``NOT_REGISTERED``, or what is wrong."""
    with grpc.insecure_channel(f"unix:{socket.absolute()}", _OPTIONS) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString,
        )
        try:
            # The empty service is the plugin as a whole: it serves only while the kubelet has it registered.
            # The other one serves as soon as the plugin's own parts are up.
            for service, words in (("", SERVES), (ALIVE_SERVICE, NOT_REGISTERED)):
                answer: health.HealthCheckResponse = check(
                    health.HealthCheckRequest(service=service), timeout=TIMEOUT_SECONDS
                )
                if answer.status == health.HealthCheckResponse.SERVING:
                    return words
        except grpc.RpcError as error:
            return f"does not answer ({error.code().name})"
    return "runs, but one of its parts is not up"


def mps_daemons(socket: Path) -> tuple[MpsState, ...] | Unread:
    """The MPS daemons that the supervisor at this socket runs, with their state."""
    if not socket.exists():
        return Unread(f"no MPS supervisor runs: the socket {socket} does not exist")
    with grpc.insecure_channel(f"unix:{socket.absolute()}", _OPTIONS) as channel:
        watch = channel.unary_stream(
            "/gpu.nvidia.com.mps.v1.Mps/Watch",
            request_serializer=mps.WatchRequest.SerializeToString,
            response_deserializer=mps.State.FromString,
        )
        try:
            # The stream does not end; each message has all daemons, the first as they are now.
            stream = watch(mps.WatchRequest(), timeout=TIMEOUT_SECONDS)
            state: mps.State = next(iter(stream))
            stream.cancel()
        except StopIteration:
            return Unread(f"the MPS supervisor at {socket} sent an empty answer")
        except grpc.RpcError as error:
            return Unread(f"the MPS supervisor does not answer at {socket} ({error.code().name})")
    return tuple(MpsState(one.name, one.running, one.message) for one in state.daemons)
