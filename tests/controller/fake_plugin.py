"""A kubelet plugin of which there is only what it tells the controller, on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import grpc

from controller.intervals import Intervals
from controller.plugin.serving import PluginServing
from controller.plugin.state import PluginState
from kubeletplugin.kubelet.wire.server import stream_method, unary_method
from proto import node_state_v1_pb2 as v1
from proto.grpc_health_v1_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.clusters import MOST_PLUGINS, PluginWatch
from tests.gpus import NodeState
from tests.running import running

BRISK = Intervals(socket_seconds=0.02, listen_again_seconds=0.05)
NODE_STATE = "gpu.nvidia.com.nodestate.v1.NodeState"


class FakePlugin:
    """Serves grpc.health.v1 ``Watch`` at a socket, and the node's state unless it is None: another driver.

    ``serving`` is what it says of itself. ``controllers`` are the names of those that asked for the state,
    each time, ``let_go`` what they answered to being asked to let go: the number, and why it failed.
    ``enabled`` are the GPUs whose virtual functions it was asked for; it answers with ``failure``.
    """

    def __init__(self, socket: Path, *, serving: bool = True, state: v1.State | None = None) -> None:
        self.changed = threading.Condition()
        self._serving = serving
        self._state = state
        self._ended = False
        self.controllers: list[str] = []
        self.let_go: list[tuple[int, str]] = []
        self.enabled: list[str] = []
        self.failure = ""
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        methods = {"Watch": stream_method(self._watch_health, HealthCheckRequest, HealthCheckResponse)}
        handlers = [grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)]
        if state is not None:
            methods = {
                "Watch": stream_method(self._watch_state, v1.WatchRequest, v1.State),
                "HasLetGo": unary_method(self._has_let_go, v1.HasLetGoRequest, v1.HasLetGoResponse),
                "EnableVirtualFunctions": unary_method(
                    self._enable, v1.EnableVirtualFunctionsRequest, v1.EnableVirtualFunctionsResponse
                ),
            }
            handlers.append(grpc.method_handlers_generic_handler(NODE_STATE, methods))
        self._server.add_generic_rpc_handlers(handlers)
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

    def has_answered(self, *numbers: int) -> bool:
        """Wait until the controllers have answered with these numbers, each without a failure."""
        wanted = [(number, "") for number in numbers]
        with self.changed:
            return self.changed.wait_for(lambda: self.let_go == wanted, 10)

    def _has_let_go(self, request: v1.HasLetGoRequest, _context: grpc.ServicerContext) -> v1.HasLetGoResponse:
        with self.changed:
            self.let_go.append((request.let_go, request.failure))
            self.changed.notify_all()
        return v1.HasLetGoResponse()

    def _enable(
        self, request: v1.EnableVirtualFunctionsRequest, _context: grpc.ServicerContext
    ) -> v1.EnableVirtualFunctionsResponse:
        with self.changed:
            self.enabled.append(request.pci_bus_id)
            self.changed.notify_all()
            return v1.EnableVirtualFunctionsResponse(failure=self.failure)

    def _watch_health(
        self, _request: HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[HealthCheckResponse]:
        for said in self._each(lambda: self._serving, context):
            yield HealthCheckResponse(status="SERVING" if said else "NOT_SERVING")

    def _watch_state(self, request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.State]:
        with self.changed:
            self.controllers.append(request.controller)
            self.changed.notify_all()
        yield from self._each(lambda: self._state, context)

    def _each(self, now: Callable[[], Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """What there is to say now, and whenever that is another, until the end."""
        said: object = self
        while True:
            with self.changed:
                while not self._ended and context.is_active() and now() is said:
                    self.changed.wait(0.5)
                if self._ended or not context.is_active():
                    return
                said = now()
            yield said


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
    with (
        ThreadPoolExecutor(MOST_PLUGINS * 2) as pool,
        running(PluginWatch(folder, pool, stop, streams, BRISK).run, stop.set),
    ):
        yield told
