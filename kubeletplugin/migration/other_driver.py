"""Finds another driver of the same name on the node: NVIDIA's own, which answers at sockets beside ours.

Instances of this driver, earlier versions included, serve the gRPC health service at each of their sockets.
No other driver of this name is known to do that. This module is imported before the rest of the plugin, so it
imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc

from kubeletplugin.kubelet.wire.server import is_answered
from proto import grpc_health_v1_pb2 as health

FORMER_CHECKPOINT = "checkpoint.json"
"""The file in the driver's folder that lists the claims that NVIDIA's driver has prepared."""

_CHECK = "/grpc.health.v1.Health/Check"
_ANSWER_SECONDS = 2.0
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


def other_driver(data_dir: Path, registry_dir: Path, driver: str) -> Path | None:
    """A socket at which another driver of the name ``driver`` answers, None if there is none.

    ``data_dir`` is the driver's folder below the kubelet's plugins, ``registry_dir`` the one in which the
    kubelet looks for registrations. A socket that nobody listens at does not count: its driver is gone.
    """
    for path in _sockets(data_dir, registry_dir, driver):
        if _is_another(path):
            return path
    return None


def _sockets(data_dir: Path, registry_dir: Path, driver: str) -> Iterator[Path]:
    # The names of the Go helper library for drivers: with or without the pod's UID, for rolling updates.
    yield from sorted(registry_dir.glob(f"{driver}*-reg.sock"))
    yield from sorted(data_dir.glob("dra*.sock"))


def _is_another(path: Path) -> bool:
    """Whether a server listens that is not an instance of this driver."""
    try:
        if not path.is_socket() or not is_answered(path):
            return False
    except OSError:
        return False
    with grpc.insecure_channel(f"unix:{path.absolute()}", options=_OPTIONS) as channel:
        ask = channel.unary_unary(
            _CHECK,
            request_serializer=health.HealthCheckRequest.SerializeToString,
            response_deserializer=health.HealthCheckResponse.FromString,
        )
        try:
            ask(health.HealthCheckRequest(), timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            # Only a server without the health service counts. One that does not answer in time may be an
            # instance of this driver.
            code: grpc.StatusCode = error.code()
            return code is grpc.StatusCode.UNIMPLEMENTED
    return False
