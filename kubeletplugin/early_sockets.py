"""Opens the plugin's sockets first, before the rest of it is even imported.

The kubelet looks for new plugins once a second, and nothing can be published before it has found this one.
So the sockets open as early as possible, and calls wait until the rest of the plugin is ready.
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
from kubeletplugin.kubelet.node_state import NodeStateBoard
from kubeletplugin.kubelet.plugin_sockets import PluginSockets, open_sockets, probes_of
from kubeletplugin.kubelet.wire.claim_call import Call, ClaimRef, Claims, PreparedDevice
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.settings import Settings

_ANSWER_SECONDS = 1.0


class LateClaims:
    """Makes calls wait until the part that prepares claims is ready."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._claims: Claims | None = None
        self._closed = False

    def ready(self, claims: Claims) -> None:
        """Pass calls to ``claims`` from now on, waiting ones included."""
        with self._ready:
            # Calls that wait look at this when they wake.
            self._claims = claims
            self._ready.notify_all()

    def close(self) -> None:
        """End the waiting calls, when the process stops."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def prepare(self, claim: ClaimRef, call: Call) -> tuple[PreparedDevice, ...]:
        """Prepare once the plugin is ready; raises ClaimBlocked if that takes too long."""
        return self._wait(claim, call).prepare(claim, call)

    def unprepare(self, claim: ClaimRef, call: Call) -> None:
        """Unprepare once the plugin is ready; raises ClaimBlocked if that takes too long."""
        self._wait(claim, call).unprepare(claim, call)

    def _wait(self, claim: ClaimRef, call: Call) -> Claims:
        claims = self._claims
        if claims is not None:
            return claims
        # The answer has to leave before the kubelet's deadline. A call without a deadline has years left,
        # which is more than a wait accepts.
        end = time.monotonic() + min(call.remaining_seconds() - _ANSWER_SECONDS, threading.TIMEOUT_MAX / 2)
        with self._ready:
            while self._claims is None and not self._closed and time.monotonic() < end:
                self._ready.wait(end - time.monotonic())
            if self._claims is None:
                raise ClaimBlocked(
                    f"claim {claim} came before the plugin was ready", "nothing to do: the kubelet asks again"
                )
            return self._claims


@dataclass(frozen=True, slots=True)
class EarlySockets:
    """The open sockets and the parts behind them, which the rest of the plugin uses."""

    service: Service
    metrics: Metrics
    board: HealthBoard
    state: NodeStateBoard
    claims: LateClaims
    sockets: PluginSockets


def open_early_sockets(settings: Settings, hung_seconds: float) -> EarlySockets:
    """Serve the plugin's sockets and its probes; raises ConfigError if an address cannot be bound."""
    service, metrics, claims = Service(hung_seconds), Metrics("kubeletplugin"), LateClaims()
    board, state = HealthBoard(), NodeStateBoard()
    # Before the sockets: a signal must not end the process with its sockets left behind.
    service.catch_signals()
    try:
        sockets = open_sockets(
            service,
            driver=DRIVER_NAME,
            service_socket=settings.service_socket,
            registration_socket=settings.registration_socket,
            claims=claims,
            board=board,
            state=state,
            metrics=metrics,
        )
        answers = probes_of(sockets, settings.service_socket, service.pulse)
        probes.serve(service, settings.health_addr, answers)
    except BaseException:
        service.stop()
        raise
    service.on_stop("claims that wait", claims.close)
    return EarlySockets(service, metrics, board, state, claims, sockets)
