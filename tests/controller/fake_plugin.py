"""A kubelet plugin of which there is only what it tells the controller, on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import grpc

from controller.intervals import Intervals
from controller.plugin.serving import PluginServing
from controller.plugin.state import PluginState
from proto import grpc_health_v1_pb2 as health
from proto import node_state_v1_pb2 as v1
from proto.grpc_health_v1_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.clusters import MOST_PLUGINS, PluginWatch
from tests.gpus import NodeState

BRISK = Intervals(socket_seconds=0.02, listen_again_seconds=0.05)
NODE_STATE = "gpu.nvidia.com.nodestate.v1.NodeState"


class FakePlugin:
    """Serves grpc.health.v1 ``Watch`` at a socket, and the node's state unless it is None: another driver.

    ``serving`` is what it says of itself. ``watches`` counts how often its health was asked for,
    ``state_calls`` how often its state was, also where it has none. ``controllers`` are the names of those
    that asked, ``let_go`` what they answered to being asked to let go: the number, and why it failed.
    ``enabled`` are the GPUs whose virtual functions it was asked for; it answers with ``failure``.
    """

    def __init__(self, socket: Path, *, serving: bool = True, state: v1.State | None = None) -> None:
        self.changed = threading.Condition()
        self._serving = serving
        self._state = state
        self._ended = False
        self.watches = 0
        self.state_calls = 0
        self.controllers: list[str] = []
        self.let_go: list[tuple[int, str]] = []
        self.enabled: list[str] = []
        self.failure = ""
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), handlers=[_Calls(self)])
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

    def tell(self, state: v1.State) -> None:
        """Change what it says of the node."""
        with self.changed:
            self._state = state
            self.changed.notify_all()

    def end(self) -> None:
        """End as a process does that is killed: connections are cut, the socket is refused."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        self._server.stop(None).wait()

    @property
    def tells(self) -> bool:
        """Whether it knows the call for its state."""
        return self._state is not None

    def asked_for_state(self) -> None:
        """Count a call for the state."""
        with self.changed:
            self.state_calls += 1
            self.changed.notify_all()

    def watch_health(
        self, _request: HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[HealthCheckResponse]:
        """Answer the health service."""
        with self.changed:
            self.watches += 1
            self.changed.notify_all()
        said: bool | None = None
        while (said := self._next_serving(said, context)) is not None:
            yield health.HealthCheckResponse(status="SERVING" if said else "NOT_SERVING")

    def has_answered(self, *numbers: int) -> bool:
        """Wait until the controllers have answered with these numbers, each without a failure."""
        wanted = [(number, "") for number in numbers]
        with self.changed:
            return self.changed.wait_for(lambda: self.let_go == wanted, 10)

    def has_let_go(self, request: v1.HasLetGoRequest, _context: grpc.ServicerContext) -> v1.HasLetGoResponse:
        """Take in what a controller answers."""
        with self.changed:
            self.let_go.append((request.let_go, request.failure))
            self.changed.notify_all()
        return v1.HasLetGoResponse()

    def enable(
        self, request: v1.EnableVirtualFunctionsRequest, _context: grpc.ServicerContext
    ) -> v1.EnableVirtualFunctionsResponse:
        """Take in which GPU is to get virtual functions."""
        with self.changed:
            self.enabled.append(request.pci_bus_id)
            self.changed.notify_all()
            return v1.EnableVirtualFunctionsResponse(failure=self.failure)

    def watch_state(self, request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.State]:
        """Answer for the state."""
        self.controllers.append(request.controller)
        said: v1.State | None = None
        while (said := self._next_state(said, context)) is not None:
            yield said

    def _next_serving(self, said: bool | None, context: grpc.ServicerContext) -> bool | None:
        """What to say after ``said``, None at the end."""
        with self.changed:
            while not self._ended and context.is_active():
                if self._serving is not said:
                    return self._serving
                self.changed.wait(0.5)
        return None

    def _next_state(self, said: v1.State | None, context: grpc.ServicerContext) -> v1.State | None:
        """What to tell after ``said``, None at the end."""
        with self.changed:
            while not self._ended and context.is_active():
                if self._state is not said:
                    return self._state
                self.changed.wait(0.5)
        return None


class _Calls(grpc.GenericRpcHandler):
    """Finds the plugin's answer to a call."""

    def __init__(self, plugin: FakePlugin) -> None:
        self._plugin = plugin

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        if details.method == "/grpc.health.v1.Health/Watch":
            return grpc.unary_stream_rpc_method_handler(
                self._plugin.watch_health,
                request_deserializer=health.HealthCheckRequest.FromString,
                response_serializer=health.HealthCheckResponse.SerializeToString,
            )
        if details.method == f"/{NODE_STATE}/Watch":
            self._plugin.asked_for_state()
            if self._plugin.tells:
                return grpc.unary_stream_rpc_method_handler(
                    self._plugin.watch_state,
                    request_deserializer=v1.WatchRequest.FromString,
                    response_serializer=v1.State.SerializeToString,
                )
        if details.method == f"/{NODE_STATE}/HasLetGo" and self._plugin.tells:
            return grpc.unary_unary_rpc_method_handler(
                self._plugin.has_let_go,
                request_deserializer=v1.HasLetGoRequest.FromString,
                response_serializer=v1.HasLetGoResponse.SerializeToString,
            )
        if details.method == f"/{NODE_STATE}/EnableVirtualFunctions":
            return grpc.unary_unary_rpc_method_handler(
                self._plugin.enable,
                request_deserializer=v1.EnableVirtualFunctionsRequest.FromString,
                response_serializer=v1.EnableVirtualFunctionsResponse.SerializeToString,
            )
        return None


class Told:
    """What a watch of plugins told, in order: how many serve, and what they hold."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.serving: list[int] = []
        self.states: list[NodeState] = []

    def serves(self, serving: int) -> None:
        """Take in how many serve."""
        with self.changed:
            self.serving.append(serving)
            self.changed.notify_all()

    def state(self, state: NodeState) -> None:
        """Take in a state."""
        with self.changed:
            self.states.append(state)
            self.changed.notify_all()

    def serving_comes_to(self, *serving: int) -> bool:
        """Wait until exactly these numbers were told, one after the other."""
        with self.changed:
            return self.changed.wait_for(lambda: self.serving == [*serving], 10)

    def serves_now(self, serving: int) -> bool:
        """Wait until so many serve."""
        with self.changed:
            return self.changed.wait_for(lambda: self.serving[-1:] == [serving], 10)

    def comes_to(self, *held: tuple[str, ...]) -> bool:
        """Wait until exactly these were told as held, one after the other."""
        with self.changed:
            return self.changed.wait_for(lambda: [one.held for one in self.states] == [*held], 10)


@contextmanager
def watching(folder: Path) -> Iterator[Told]:
    """A watch of the plugins of a folder, as the controller has it, and what it tells."""
    told, stop = Told(), threading.Event()
    streams = (PluginServing(told.serves).stream(), PluginState(told.state).stream())
    with ThreadPoolExecutor(MOST_PLUGINS * 2) as pool:
        thread = threading.Thread(target=PluginWatch(folder, pool, stop, streams, BRISK).run)
        thread.start()
        try:
            yield told
        finally:
            stop.set()
            thread.join(10)
            assert not thread.is_alive()
