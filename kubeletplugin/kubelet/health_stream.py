"""Sends the kubelet the health of every device, on the stream that it opens (DRAResourceHealth).

The kubelet shows it in the pod's status. Both versions of the service are served: Kubernetes 1.37
calls v1, 1.36 knows v1alpha1 only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import grpc

from kubeletplugin.kubelet.wire.health_board import Devices, HealthBoard
from kubeletplugin.kubelet.wire.server import stream_method
from kubeletplugin.kubelet.wire.streams import TooManyStreams
from proto import dra_health_v1_pb2 as v1
from proto import dra_health_v1alpha1_pb2 as v1alpha1

HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"

TIMEOUT_SECONDS = 30
"""The kubelet shows a device as Unknown if it was not sent for this time."""


def handlers(
    board: HealthBoard, while_open: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[grpc.GenericRpcHandler, ...]:
    """The handlers of both versions of the service; each stream is open inside ``while_open``."""
    return (
        _handler(HEALTH_V1, v1, board, while_open),
        _handler(HEALTH_V1ALPHA1, v1alpha1, board, while_open),
    )


def answer(devices: Devices, wire: Any) -> Any:
    """The list as a message; ``wire`` is the module with the messages of one version."""
    # The messages of both versions have the same fields.
    message = wire.NodeWatchResourcesResponse()
    for device in devices:
        message.devices.add(
            device=wire.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            # The enum has UNKNOWN, HEALTHY and UNHEALTHY.
            health=wire.HealthStatus.Value(device.health.word.upper()),
            # For other readers: the kubelet itself counts from when it received the message.
            last_updated_time=device.checked_unix_seconds,
            health_check_timeout_seconds=TIMEOUT_SECONDS,
            message=device.health.message,
        )
    return message


def _handler(
    service: str, wire: Any, board: HealthBoard, while_open: Callable[[], AbstractContextManager[None]]
) -> grpc.GenericRpcHandler:
    def watch(_request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        # The kubelet tries again 5 s after a stream has ended, and until then knows no health.
        try:
            with while_open():
                for devices in board.follow(context):
                    yield answer(devices, wire)
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many health streams are open")

    method = stream_method(watch, wire.NodeWatchResourcesRequest, wire.NodeWatchResourcesResponse)
    return grpc.method_handlers_generic_handler(service, {"NodeWatchResources": method})
