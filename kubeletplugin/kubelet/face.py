"""Opens and closes the plugin's two gRPC sockets in the right order, and answers the probes about them."""

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
from kubeletplugin.kubelet.dra_service import DRA_V1, DRA_V1BETA1, PACKAGE, DraService
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
class Face:
    """The open sockets, and the parts behind them that others talk to.

    ``serving`` needs ``READY_PART`` from its owner before anybody sees the plugin as serving. Its owner takes
    ``ALONE_PART`` down while another driver of the name answers on the node. It also needs the kubelet:
    devices that are published before the plugin is registered make pods fail.
    """

    serving: Serving
    registration: Registration
    _boards: tuple[HealthBoard | NodeStateBoard, ...]
    _servers: tuple[SocketServer, ...]

    def close(self) -> None:
        """Take no more calls and let those that run finish, the kubelet's way in first.

        May be called again. What the calls work with has to live until it returns.
        """
        self.serving.close()
        for board in self._boards:
            board.close()
        for server in reversed(self._servers):
            server.stop()


def open_face(
    service: Service,
    *,
    driver: str,
    service_socket: Path,
    registration_socket: Path,
    claims: Claims,
    board: HealthBoard,
    state: NodeStateBoard,
    metrics: Metrics,
) -> Face:
    """Serve both sockets until ``service`` stops; the one that the kubelet watches for opens last.

    Raises ConfigError when a socket cannot be bound.
    """
    serving = Serving(SERVICE_PART, REGISTRATION_PART, READY_PART, outside=(KUBELET_PART, ALONE_PART))
    serving.up(ALONE_PART)  # until somebody says otherwise
    contact = KubeletContact(lambda: serving.up(KUBELET_PART), lambda: serving.down(KUBELET_PART))
    announcement = Registration(
        driver, service_socket.absolute(), registration_socket.absolute(), contact.told
    )
    workers = service.pool("grpc", WORKERS)
    dra = DraService(claims, service.pool("claims", WORKERS), metrics)
    names = (f"{PACKAGE}.{DRA_V1}", f"{PACKAGE}.{DRA_V1BETA1}", HEALTH_V1, HEALTH_V1ALPHA1)
    health = grpc_health.handler(serving, *names)
    calls = SocketServer(
        service_socket,
        (
            *dra_service.handlers(dra, announcement.registered_ns),
            *health_stream.handlers(board, contact.stream),
            *node_state.handlers(state),
            health,
        ),
        workers,
    )
    registrar = SocketServer(registration_socket, (registration.handler(announcement), health), workers)
    face = Face(serving, announcement, (board, state), (calls, registrar))
    service.on_stop("face", face.close)
    for server, part in ((calls, SERVICE_PART), (registrar, REGISTRATION_PART)):
        server.start()
        serving.up(part)
    service.spawn("registration", announcement.explain_when_late, stop=announcement.close)
    return face


class KubeletContact:
    """Knows whether the kubelet has the plugin registered right now; safe to use from every thread.

    It calls ``up`` and ``down`` when that changes. A kubelet that is asked to start a pod before it knows the
    plugin fails the pod, and comes back to it only after a minute. So devices are published once the kubelet
    has said that the plugin is registered, and not while it restarts: then its health stream breaks, and
    stays away until it has registered us again.
    """

    def __init__(self, up: Callable[[], None], down: Callable[[], None]) -> None:
        self._up, self._down = up, down
        self._lock = threading.Lock()
        self._registered = False
        self._streams = 0
        self._lost = False

    def told(self, registered: bool) -> None:
        """Called with what the kubelet said: whether it took the plugin."""
        with self._lock:
            self._registered, self._lost = registered, False
            self._tell()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A health stream of the kubelet is open. A kubelet without one (before 1.36) is not missed."""
        with self._lock:
            self._streams += 1
            self._lost = False
            self._tell()
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1
                self._lost = self._streams == 0
                self._tell()

    def _tell(self) -> None:
        if self._registered and not self._lost:
            self._up()
        else:
            self._down()


def probes_of(face: Face, service_socket: Path, pulse: Pulse) -> Probes:
    """Started once its own parts are up, alive while loops and server answer, ready while registered."""
    server = SelfCheck(service_socket, HEALTH_CHECK)

    def started() -> str:
        return "" if face.serving.alive.value else f"not up yet: {', '.join(face.serving.missing())}"

    def ready() -> str:
        if face.serving.state.value:
            return ""
        return (
            started()
            or ("another driver of this name answers on the node" if face.serving.is_down(ALONE_PART) else "")
            or face.registration.why_not()
            or "the kubelet ended its health stream and has not registered the plugin again: see that it runs"
        )

    return Probes(started, lambda: pulse.hung() or server.why_not(), ready)
