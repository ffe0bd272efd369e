"""A kubelet plugin of which there is only the health service, on a real socket."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import grpc

from proto import grpc_health_v1_pb2 as health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from proto.grpc_health_v1_pb2 import HealthCheckRequest, HealthCheckResponse


class FakePlugin:
    """Serves grpc.health.v1 ``Watch`` at a socket; ``serving`` is what it says of itself."""

    def __init__(self, socket: Path, *, serving: bool = True) -> None:
        self.changed = threading.Condition()
        self._serving = serving
        self._ended = False
        self.watches = 0
        handler = grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health",
            {
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self._watch,
                    request_deserializer=health.HealthCheckRequest.FromString,
                    response_serializer=health.HealthCheckResponse.SerializeToString,
                )
            },
        )
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4), handlers=[handler])
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def say(self, *, serving: bool) -> None:
        """Change what it says of itself."""
        with self.changed:
            self._serving = serving
            self.changed.notify_all()

    def end(self) -> None:
        """End as a process does that is killed: connections are cut, the socket is refused."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        self._server.stop(None).wait()

    def _watch(
        self, _request: HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[HealthCheckResponse]:
        with self.changed:
            self.watches += 1
            self.changed.notify_all()
        said: bool | None = None
        while (said := self._next(said, context)) is not None:
            yield health.HealthCheckResponse(status="SERVING" if said else "NOT_SERVING")

    def _next(self, said: bool | None, context: grpc.ServicerContext) -> bool | None:
        """What to say after ``said``, None at the end."""
        with self.changed:
            while not self._ended and context.is_active():
                if self._serving is not said:
                    return self._serving
                self.changed.wait(0.5)
        return None
