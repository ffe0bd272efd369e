"""Answers the gRPC health checking protocol, for the controller and the kubelet's probes.

The plugin as a whole (the empty service name) serves while its own parts are up and the kubelet has it
registered. A single service, by its name, serves while the plugin's own parts are up. Liveness probes use
that: a restart of the plugin cannot bring a kubelet back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from kubeletplugin.kubelet.wire.server import stream_method, unary_method
from kubeletplugin.kubelet.wire.streams import Published, TooManyStreams
from proto import grpc_health_v1_pb2 as pb

HEALTH_SERVICE = "grpc.health.v1.Health"

_SERVING = pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVING)
_NOT_SERVING = pb.HealthCheckResponse(status=pb.HealthCheckResponse.NOT_SERVING)
_SERVICE_UNKNOWN = pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class Serving:
    """Whether the plugin serves, which needs all of its parts.

    ``state`` is true while all parts are up, ``alive`` while those inside of the plugin are.
    """

    def __init__(self, *parts: str, outside: tuple[str, ...] = ()) -> None:
        """``parts`` are inside of the plugin, ``outside`` are not. All are down at first."""
        self._outside = frozenset(outside)
        self._parts = frozenset(parts) | self._outside
        self._down = set(self._parts)
        self._lock = threading.Lock()
        self.state: Published[bool] = Published(not self._parts)
        self.alive: Published[bool] = Published(not parts)

    def up(self, part: str) -> None:
        """The part works now; raises KeyError for an unknown part."""
        with self._lock:
            # A wrong name would keep the plugin from ever serving.
            self._known(part)
            self._down.discard(part)
            self._publish()

    def down(self, part: str) -> None:
        """The part no longer works; raises KeyError for an unknown part."""
        with self._lock:
            self._known(part)
            self._down.add(part)
            self._publish()

    def missing(self) -> tuple[str, ...]:
        """The parts inside of the plugin that are down, sorted."""
        with self._lock:
            return tuple(sorted(self._down - self._outside))

    def is_down(self, part: str) -> bool:
        """Whether the part is down; raises KeyError for an unknown part."""
        with self._lock:
            self._known(part)
            return part in self._down

    def close(self) -> None:
        """Stop serving for good: watchers get NOT_SERVING, then their streams end."""
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
    """The Health service, for the plugin as a whole (the empty name) and these services."""
    known = {"": serving.state, **dict.fromkeys(services, serving.alive)}

    def check(request: pb.HealthCheckRequest, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        if request.service not in known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here")
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
            # The protocol wants one SERVICE_UNKNOWN, after which the stream stays open: the service may
            # be added later.
            for index, _ in enumerate(states):
                if index == 0:
                    yield _SERVICE_UNKNOWN
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many health watches are open")

    return grpc.method_handlers_generic_handler(
        HEALTH_SERVICE,
        {
            "Check": unary_method(check, pb.HealthCheckRequest, pb.HealthCheckResponse),
            "List": unary_method(list_all, pb.HealthListRequest, pb.HealthListResponse),
            "Watch": stream_method(watch, pb.HealthCheckRequest, pb.HealthCheckResponse),
        },
    )


def _answer(serving: bool) -> pb.HealthCheckResponse:
    return _SERVING if serving else _NOT_SERVING
