"""The NodeState service, by which the controller and gpuctl talk with the plugin.

Watch sends the controller which devices claims hold and which places are blocked, and asks it to close NVML;
HasLetGo is its answer to that. EnableVirtualFunctions and Heal do what the controller or an admin wants.

The kubelet does not use this service: an open stream says nothing about the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import grpc

from driver.errors import DriverError
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.kubelet.wire.heal import Heal, HealProgress, HealRequest
from kubeletplugin.kubelet.wire.server import stream_method, unary_method
from kubeletplugin.kubelet.wire.streams import Published, StreamCall, TooManyStreams
from proto import node_state_v1_pb2 as v1

if TYPE_CHECKING:
    from driver.devices.node_state import NodeState


_log = get_logger("node-state")

NODE_STATE_V1 = "gpu.nvidia.com.nodestate.v1.NodeState"

RESEND_SECONDS = 10.0
"""The state is sent again after this time, so that the controller notices a connection that is broken."""

_LONGEST_WAIT_SECONDS = 3600.0
"""The longest wait of a Heal call, which takes one of the workers that prepare claims."""


class NotReady(Exception):
    """The plugin is still starting."""


class NodeStateBoard:
    """The state of this node for all open streams, and the controllers that opened them."""

    def __init__(self) -> None:
        """Start without a state, so that nothing is sent: the controller waits for the first one."""
        self._state: Published[NodeState | None] = Published(None)
        self._lock = Lock()
        # The number of the newest request to close NVML, 0 for none.
        self._let_go = 0
        self._enable_virtual: Callable[[PciAddress], None] | None = None
        self._heal: Heal | None = None
        self.controllers = Controllers(self._ask)

    def update(self, state: NodeState) -> None:
        """Send this state, which must be complete: what it lacks counts as neither held nor blocked."""
        with self._lock:
            # Whoever makes the state does not know of requests to close NVML.
            self._state.publish(replace(state, let_go=self._let_go))

    def _ask(self, number: int) -> None:
        """Ask all controllers to close NVML; 0 lets them open it again."""
        # The request travels in the state: a controller that connects later gets it with its first message.
        with self._lock:
            self._let_go = number
            state = self._state.value
            if state is not None:
                self._state.publish(replace(state, let_go=number))

    def set_enable_virtual(self, enable: Callable[[PciAddress], None]) -> None:
        """Set the function that turns on the virtual functions of a GPU; it raises DriverError."""
        self._enable_virtual = enable

    def enable_virtual(self, pci: PciAddress) -> str:
        """Turn the functions on; returns the error, empty for success. Raises NotReady during the start."""
        if self._enable_virtual is None:
            raise NotReady
        try:
            self._enable_virtual(pci)
        except DriverError as error:
            _log.warning("cannot turn on virtual functions", gpu=str(pci), error=error.logged)
            return str(error)
        return ""

    def set_heal(self, heal: Heal) -> None:
        """Set the function that heals GPUs."""
        self._heal = heal

    @property
    def heal(self) -> Heal:
        """The function that heals GPUs; raises NotReady during the start."""
        if self._heal is None:
            raise NotReady
        return self._heal

    def close(self) -> None:
        """End all streams, when the plugin stops."""
        self._state.close()

    def follow(self, call: StreamCall, resend_seconds: float = RESEND_SECONDS) -> Iterator[NodeState]:
        """The state as soon as there is one, at each change and at intervals; raises TooManyStreams."""
        return (state for state in self._state.follow(call, resend_seconds) if state is not None)


def handlers(board: NodeStateBoard) -> tuple[grpc.GenericRpcHandler, ...]:
    """The handlers of the service."""

    def watch(request: v1.WatchRequest, context: grpc.ServicerContext) -> Iterator[v1.State]:
        board.controllers.joined(request.controller)
        # The stream tells that the controller runs. Its end, also by a broken connection, runs the finally.
        try:
            yield from map(answer, board.follow(context))
        except TooManyStreams:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches of the node's state are open")
        finally:
            board.controllers.left(request.controller)

    def has_let_go(request: v1.HasLetGoRequest, _context: grpc.ServicerContext) -> v1.HasLetGoResponse:
        board.controllers.answered(request.controller, request.let_go, request.failure)
        return v1.HasLetGoResponse()

    def enable_virtual(
        request: v1.EnableVirtualFunctionsRequest, context: grpc.ServicerContext
    ) -> v1.EnableVirtualFunctionsResponse:
        try:
            pci = PciAddress.parse(request.pci_bus_id)
        # context.abort raises, so nothing after it runs.
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            return v1.EnableVirtualFunctionsResponse(failure=board.enable_virtual(pci))
        except NotReady:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin is not ready yet")

    def heal(request: v1.HealRequest, context: grpc.ServicerContext) -> Iterator[v1.HealProgress]:
        try:
            yield from _heal_steps(board.heal, request)
        except NotReady:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin is not ready yet")

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Watch": stream_method(watch, v1.WatchRequest, v1.State),
        "HasLetGo": unary_method(has_let_go, v1.HasLetGoRequest, v1.HasLetGoResponse),
        "EnableVirtualFunctions": unary_method(
            enable_virtual, v1.EnableVirtualFunctionsRequest, v1.EnableVirtualFunctionsResponse
        ),
        "Heal": stream_method(heal, v1.HealRequest, v1.HealProgress),
    }
    return (grpc.method_handlers_generic_handler(NODE_STATE_V1, methods),)


def answer(state: NodeState) -> v1.State:
    """The state as a message."""
    message = v1.State(held=state.held, busy=map(str, state.busy), let_go=state.let_go)
    for one in state.healed:
        message.healed.add(pci_bus_id=str(one.pci), boottime_milliseconds=one.boottime_milliseconds)
    for blocked in state.blocked:
        span = blocked.span
        message.blocked.add(
            pci_bus_id=str(blocked.pci),
            span=None if span is None else v1.Span(start=span.start, size=span.size),
            reason=blocked.reason,
            message=blocked.message,
        )
    return message


def _heal_steps(heal: Heal, request: v1.HealRequest) -> Iterator[v1.HealProgress]:
    """The steps of a healing as messages."""
    wait_seconds = min(float(request.wait_seconds), _LONGEST_WAIT_SECONDS)
    yield from map(_heal_progress, heal(HealRequest(request.gpu, request.reset, wait_seconds)))


def _heal_progress(progress: HealProgress) -> v1.HealProgress:
    """One step as a message."""
    return v1.HealProgress(
        step=progress.step,
        pci_bus_ids=map(str, progress.gpus),
        claims=[
            v1.HoldingClaim(namespace=one.namespace, name=one.name, uid=one.uid) for one in progress.claims
        ],
        processes=[
            v1.UsingProcess(process_id=one.pid, name=one.name, pod_uid=one.pod_uid)
            for one in progress.processes
        ],
        message=progress.message,
    )
