"""Puts the plugin's whole gRPC face together: two sockets, opened and closed in the right order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubeletplugin.kubelet import dra_service, grpc_health, health_stream, node_state, registration
from kubeletplugin.kubelet.contact import KubeletContact
from kubeletplugin.kubelet.dra_service import DRA_V1, DRA_V1BETA1, PACKAGE, DraService
from kubeletplugin.kubelet.grpc_health import Serving
from kubeletplugin.kubelet.health_stream import HEALTH_V1, HEALTH_V1ALPHA1
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.registration import Registration
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.kubelet.wire.server import WORKERS, SocketServer

if TYPE_CHECKING:
    from pathlib import Path

    from driver.process.metrics import Metrics
    from driver.process.service import Service
    from kubeletplugin.kubelet.wire.claim_call import Claims

SERVICE_PART = "service socket"
REGISTRATION_PART = "registration socket"
READY_PART = "plugin"
ALONE_PART = "no other driver of this name"
KUBELET_PART = "registration with the kubelet"


@dataclass(frozen=True, slots=True)
class Face:
    """The parts of the face that others talk to.

    ``serving`` needs ``READY_PART`` from its owner before anybody is told that the plugin serves. Its owner
    takes ``ALONE_PART`` down while another driver of the name answers on the node. And it needs the kubelet:
    what is published before the plugin is registered makes pods fail.
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
