"""Tells the kubelet the health of every device, on the stream that it opens (DRAResourceHealth).

The kubelet shows it in the pod's status. Both versions of the service are served: Kubernetes 1.37
asks for v1, 1.36 knows v1alpha1 only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import grpc

from kubeletplugin.kubelet.wire.health_board import Devices, HealthBoard
from kubeletplugin.kubelet.wire.streams import TooManyStreams
from proto import dra_health_v1_pb2 as v1
from proto import dra_health_v1alpha1_pb2 as v1alpha1

HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"

TIMEOUT_SECONDS = 30

Request = v1.NodeWatchResourcesRequest | v1alpha1.NodeWatchResourcesRequest
Answer = v1.NodeWatchResourcesResponse | v1alpha1.NodeWatchResourcesResponse


def handlers(
    board: HealthBoard, while_open: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[grpc.GenericRpcHandler, ...]:
    """The handlers of both versions of the service; each stream is open inside ``while_open``."""
    return (
        _handler(HEALTH_V1, v1.NodeWatchResourcesRequest, board, answer_v1, while_open),
        _handler(HEALTH_V1ALPHA1, v1alpha1.NodeWatchResourcesRequest, board, answer_v1alpha1, while_open),
    )


def answer_v1(devices: Devices) -> v1.NodeWatchResourcesResponse:
    """The list as v1 has it."""
    answer = v1.NodeWatchResourcesResponse()
    for device in devices:
        answer.devices.add(
            device=v1.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=v1.HealthStatus.Value(device.health.upper()),
            last_updated_time=device.checked_unix_seconds,
            health_check_timeout_seconds=TIMEOUT_SECONDS,
            message=device.message,
        )
    return answer


def answer_v1alpha1(devices: Devices) -> v1alpha1.NodeWatchResourcesResponse:
    """The list as v1alpha1 has it."""
    answer = v1alpha1.NodeWatchResourcesResponse()
    for device in devices:
        answer.devices.add(
            device=v1alpha1.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=v1alpha1.HealthStatus.Value(device.health.upper()),
            last_updated_time=device.checked_unix_seconds,
            health_check_timeout_seconds=TIMEOUT_SECONDS,
            message=device.message,
        )
    return answer


def _handler(
    service: str,
    request: type[Request],
    board: HealthBoard,
    answer: Callable[[Devices], Answer],
    while_open: Callable[[], AbstractContextManager[None]],
) -> grpc.GenericRpcHandler:
    def watch(_request: Request, context: grpc.ServicerContext) -> Iterator[Answer]:
        try:
            with while_open():
                for devices in board.follow(context):
                    yield answer(devices)
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many health streams are open")

    method = grpc.unary_stream_rpc_method_handler(
        watch, request_deserializer=request.FromString, response_serializer=_serialized
    )
    return grpc.method_handlers_generic_handler(service, {"NodeWatchResources": method})


def _serialized(answer: Answer) -> bytes:
    return answer.SerializeToString()
