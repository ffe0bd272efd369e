"""Opens and closes the plugin's two gRPC sockets in the right order, and answers probes about them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driver.process.probes import Probes
from driver.process.pulse import Pulse
from driver.process.service import Service
from kubeletplugin.kubelet import dra_service, grpc_health, health_stream, node_state, registration
from kubeletplugin.kubelet.dra_service import DRA_V1, PACKAGE, DraService
from kubeletplugin.kubelet.grpc_health import Serving
from kubeletplugin.kubelet.health_stream import HEALTH_V1, HEALTH_V1ALPHA1
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.registration import Registration
from kubeletplugin.kubelet.wire.claim_call import Claims
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.kubelet.wire.self_check import HEALTH_CHECK, SelfCheck
from kubeletplugin.kubelet.wire.server import WORKERS, SocketServer

if TYPE_CHECKING:
    from driver.process.metrics import Metrics


SERVICE_PART = "service socket"
REGISTRATION_PART = "registration socket"
READY_PART = "plugin"
ALONE_PART = "no other driver of this name"
KUBELET_PART = "registration with the kubelet"


@dataclass(frozen=True, slots=True)
class PluginSockets:
    """The open sockets, and the parts behind them that others use.

    The plugin counts as serving once its owner marks ``READY_PART`` of ``serving`` as up, and while the
    kubelet has it registered: the controller publishes devices only then. The owner marks ``ALONE_PART`` as
    down while another driver of the same name answers on the node.
    """

    serving: Serving
    registration: Registration
    _boards: tuple[HealthBoard | NodeStateBoard, ...]
    _servers: tuple[SocketServer, ...]

    def close(self) -> None:
        """Accept no more calls and let running ones finish. May be called again.

        Everything that the calls use has to live until it returns.
        """
        self.serving.close()
        # The boards end the long streams, which would hold up the stop of the servers.
        for board in self._boards:
            board.close()
        # The registration socket goes first: without it the kubelet stops using this instance.
        for server in reversed(self._servers):
            server.stop()


def open_sockets(
    service: Service,
    *,
    driver: str,
    service_socket: Path,
    registration_socket: Path,
    claims: Claims,
    board: HealthBoard,
    state: NodeStateBoard,
    metrics: Metrics,
) -> PluginSockets:
    """Serve both sockets until ``service`` stops; raises ConfigError if a socket cannot be bound."""
    serving = Serving(SERVICE_PART, REGISTRATION_PART, READY_PART, outside=(KUBELET_PART, ALONE_PART))
    serving.up(ALONE_PART)  # until another driver is found
    contact = KubeletContact(lambda: serving.up(KUBELET_PART), lambda: serving.down(KUBELET_PART))
    announcement = Registration(
        driver, service_socket.absolute(), registration_socket.absolute(), contact.registered
    )
    # Claims have a pool of their own: a call waits for its claims, so with one pool calls could take all the
    # workers that their claims need.
    workers = service.pool("grpc", WORKERS)
    dra = DraService(claims, service.pool("claims", WORKERS), metrics)
    # A probe asks for one of these services, or for the plugin as a whole.
    names = (f"{PACKAGE}.{DRA_V1}", HEALTH_V1, HEALTH_V1ALPHA1)
    health = grpc_health.handler(serving, *names)
    calls = SocketServer(
        service_socket,
        (
            dra_service.handler(dra, announcement.registered_ns),
            *health_stream.handlers(board, contact.stream),
            *node_state.handlers(state),
            health,
        ),
        workers,
    )
    registrar = SocketServer(registration_socket, (registration.handler(announcement), health), workers)
    sockets = PluginSockets(serving, announcement, (board, state), (calls, registrar))
    service.on_stop("face", sockets.close)
    # The service socket opens first: the kubelet connects to it as soon as it sees the registration socket.
    for server, part in ((calls, SERVICE_PART), (registrar, REGISTRATION_PART)):
        server.start()
        serving.up(part)
    service.spawn("registration", announcement.explain_when_late, stop=announcement.close)
    return sockets


class KubeletContact:
    """Knows whether the kubelet has the plugin registered now; safe to use from any thread.

    It calls ``up`` and ``down`` when that may have changed. If the kubelet has to start a pod before it knows
    the plugin, the pod fails, and the kubelet tries again only after a minute. So devices are published only
    while the plugin is registered.
    """

    # A kubelet that stops says nothing, but its health stream breaks, and it opens one again only after it
    # has started and registered the plugin.

    def __init__(self, up: Callable[[], None], down: Callable[[], None]) -> None:
        self._up, self._down = up, down
        self._lock = threading.Lock()
        self._registered = False
        self._streams = 0
        self._lost = False

    def registered(self, registered: bool) -> None:
        """Called with the kubelet's answer: whether it accepted the plugin."""
        with self._lock:
            # A new registration ends the doubt about a stream that broke before.
            self._registered, self._lost = registered, False
            self._report()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Open while a health stream of the kubelet is; a kubelet that opens none does not count as lost."""
        with self._lock:
            self._streams += 1
            self._lost = False
            self._report()
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1
                self._lost = self._streams == 0
                self._report()

    def _report(self) -> None:
        # A kubelet without a health stream yet is not lost: it may be of a version that opens none.
        if self._registered and not self._lost:
            self._up()
        else:
            self._down()


def probes_of(sockets: PluginSockets, service_socket: Path, pulse: Pulse) -> Probes:
    """Started once the plugin's parts are up, alive while loops and server answer, ready while registered."""
    server = SelfCheck(service_socket, HEALTH_CHECK)

    def started() -> str:
        return (
            "" if sockets.serving.alive.value else f"not started yet: {', '.join(sockets.serving.missing())}"
        )

    def ready() -> str:
        if sockets.serving.state.value:
            return ""
        if why_not := started():
            return why_not
        if sockets.serving.is_down(ALONE_PART):
            return "another driver with this name answers on the node"
        return sockets.registration.why_not() or (
            "the kubelet ended its health stream and has not registered the plugin again: check "
            "that the kubelet runs"
        )

    return Probes(started, lambda: pulse.hung() or server.why_not(), ready)
