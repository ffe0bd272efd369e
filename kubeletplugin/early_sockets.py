"""Opens the plugin's sockets first, before the rest of it is even imported.

The kubelet looks for new plugins once a second, and nothing can be published before it has found this
one; so it gets something to find as early as possible. A call that comes in before the rest is ready
waits for it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from driver.devices.names import DRIVER_NAME
from driver.errors import ClaimBlocked
from driver.process import probes
from driver.process.metrics import Metrics
from driver.process.service import Service
from kubeletplugin.kubelet.face import Face, open_face, probes_of
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, Claims, PreparedDevice
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.settings import Settings

_ANSWER_SECONDS = 1.0


class LateClaims:
    """Lets calls wait until the part that prepares claims is ready."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._claims: Claims | None = None
        self._closed = False

    def ready(self, claims: Claims) -> None:
        """From now on ``claims`` does the work, for calls that wait as well."""
        with self._ready:
            self._claims = claims
            self._ready.notify_all()

    def close(self) -> None:
        """End the calls that wait: the process stops."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare when that is possible; raises ClaimBlocked when it does not become so in time."""
        return self._wait(claim, call).prepare(claim, call)

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Unprepare when that is possible; raises ClaimBlocked when it does not become so in time."""
        self._wait(claim, call).unprepare(claim, call)

    def _wait(self, claim: ClaimRef, call: Call) -> Claims:
        claims = self._claims
        if claims is not None:
            return claims
        end = time.monotonic() + min(call.remaining_seconds() - _ANSWER_SECONDS, threading.TIMEOUT_MAX / 2)
        with self._ready:
            while self._claims is None and not self._closed and time.monotonic() < end:
                self._ready.wait(end - time.monotonic())
            if self._claims is None:
                raise ClaimBlocked(
                    f"claim {claim} came before the plugin was ready", "nothing: the kubelet asks again"
                )
            return self._claims


@dataclass(frozen=True, slots=True)
class Front:
    """What is open already, for the rest of the plugin to build on."""

    service: Service
    metrics: Metrics
    board: HealthBoard
    state: NodeStateBoard
    claims: LateClaims
    face: Face


def open_front(settings: Settings, hung_seconds: float) -> Front:
    """Serve the plugin's sockets and its probes; raises ConfigError when an address cannot be bound."""
    service, metrics, claims = Service(hung_seconds), Metrics("kubeletplugin"), LateClaims()
    board, state = HealthBoard(), NodeStateBoard()
    service.catch_signals()
    try:
        face = open_face(
            service,
            driver=DRIVER_NAME,
            service_socket=settings.service_socket,
            registration_socket=settings.registration_socket,
            claims=claims,
            board=board,
            state=state,
            metrics=metrics,
        )
        probes.serve(service, settings.health_addr, probes_of(face, settings.service_socket, service.pulse))
    except BaseException:
        service.stop()
        raise
    service.on_stop("claims that wait", claims.close)
    return Front(service, metrics, board, state, claims, face)
