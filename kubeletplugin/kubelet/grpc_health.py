"""Answers the gRPC health checking protocol: our controller and probes of the kubelet ask it.

The plugin as a whole (the empty service name) serves while all that it needs is up: its own parts,
and the kubelet that has it registered. A service of its own serves while the own parts are up: that
is what a liveness probe asks, since a restart cannot bring a kubelet back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from kubeletplugin.kubelet.wire.streams import Published, TooManyStreams
from proto import grpc_health_v1_pb2 as pb

HEALTH_SERVICE = "grpc.health.v1.Health"

_SERVING = pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING)
_NOT_SERVING = pb.HealthCheckResponse(status=pb.HealthCheckResponse.NOT_SERVING)
_SERVICE_UNKNOWN = pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class Serving:
    """Whether the plugin serves: only while every part that it needs is up.

    ``state`` is that of the whole, ``alive`` that without the parts outside of the plugin.
    """

    def __init__(self, *parts: str, outside: tuple[str, ...] = ()) -> None:
        """Name the parts that must be up, and those outside; none is yet."""
        self._outside = frozenset(outside)
        self._parts = frozenset(parts) | self._outside
        self._down = set(self._parts)
        self._lock = threading.Lock()
        self.state: Published[bool] = Published(not self._parts)
        self.alive: Published[bool] = Published(not parts)

    def up(self, part: str) -> None:
        """The part works now. Raises KeyError for a part that was not named."""
        with self._lock:
            self._known(part)
            self._down.discard(part)
            self._publish()

    def down(self, part: str) -> None:
        """The part does not work any longer. Raises KeyError for a part that was not named."""
        with self._lock:
            self._known(part)
            self._down.add(part)
            self._publish()

    def missing(self) -> tuple[str, ...]:
        """The parts of its own that are not up, sorted."""
        with self._lock:
            return tuple(sorted(self._down - self._outside))

    def is_down(self, part: str) -> bool:
        """Whether the part does not work now. Raises KeyError for a part that was not named."""
        with self._lock:
            self._known(part)
            return part in self._down

    def close(self) -> None:
        """Not serving, for good: watchers are told so and their streams end."""
        for state in (self.state, self.alive):
            state.publish(False)  # noqa: FBT003 - the value is the message
            state.close()

    def _publish(self) -> None:
        self.state.publish(not self._down)
        self.alive.publish(not self._down - self._outside)

    def _known(self, part: str) -> None:
        if part not in self._parts:
            raise KeyError(part)


def handler(serving: Serving, *services: str) -> grpc.GenericRpcHandler:
    """The Health service for the plugin as a whole (the empty name) and the services named here."""
    known = {"": serving.state, **dict.fromkeys(services, serving.alive)}

    def check(request: pb.HealthCheckRequest, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        if request.service not in known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return _answer(known[request.service].value)

    def list_all(_request: pb.HealthListRequest, _context: grpc.ServicerContext) -> pb.HealthListResponse:
        return pb.HealthListResponse(statuses={name: _answer(one.value) for name, one in known.items()})

    def watch(
        request: pb.HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.HealthCheckResponse]:
        try:
            states = known.get(request.service, serving.state).follow(context)
            if request.service in known:
                yield from map(_answer, states)
                return
            for index, _ in enumerate(states):
                if index == 0:  # said once; the stream stays open, as the protocol wants it
                    yield _SERVICE_UNKNOWN
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many health watches are open")

    return grpc.method_handlers_generic_handler(
        HEALTH_SERVICE,
        {
            "Check": grpc.unary_unary_rpc_method_handler(
                check,
                request_deserializer=pb.HealthCheckRequest.FromString,
                response_serializer=pb.HealthCheckResponse.SerializeToString,
            ),
            "List": grpc.unary_unary_rpc_method_handler(
                list_all,
                request_deserializer=pb.HealthListRequest.FromString,
                response_serializer=pb.HealthListResponse.SerializeToString,
            ),
            "Watch": grpc.unary_stream_rpc_method_handler(
                watch,
                request_deserializer=pb.HealthCheckRequest.FromString,
                response_serializer=pb.HealthCheckResponse.SerializeToString,
            ),
        },
    )


def _answer(serving: bool) -> pb.HealthCheckResponse:
    return _SERVING if serving else _NOT_SERVING
