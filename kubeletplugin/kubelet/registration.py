"""Makes the plugin known to the kubelet, and keeps what the kubelet said about it.

The kubelet finds the registration socket in its plugins_registry folder, asks GetInfo within a
second, connects to the service socket and then tells whether it took the plugin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from driver.process.log import get_logger
from kubeletplugin.kubelet.dra_service import DRA_V1, DRA_V1BETA1
from kubeletplugin.kubelet.health_stream import HEALTH_V1, HEALTH_V1ALPHA1
from proto import registration_v1_pb2 as pb

SUPPORTED_VERSIONS = (DRA_V1, DRA_V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)
"""The kubelet takes the first DRA version of this list that it knows, so v1 stands first. It opens
the health stream only when a health service is named (since 1.37)."""

LATE_SECONDS = 30.0
"""After this time without a registration the log says why there is none."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """The kubelet took the plugin."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The kubelet did not take the plugin; ``reason`` is in its own words. It will ask again."""

    reason: str


RegistrationOutcome = Registered | Refused


class Registration:
    """What the kubelet is told about the plugin, and the last outcome that it told us."""

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        registration_socket: Path,
        on_outcome: Callable[[bool], None] = lambda _registered: None,
    ) -> None:
        """Announce ``driver``, served at the socket ``endpoint``.

        ``registration_socket`` is where the kubelet should find us, for the messages. ``on_outcome``
        hears each time whether the kubelet took the plugin.
        """
        self._on_outcome = on_outcome
        self._info = pb.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=SUPPORTED_VERSIONS
        )
        self._socket = registration_socket
        self._told = threading.Condition()
        self._outcome: RegistrationOutcome | None = None
        self._asked = False
        self._closed = False
        self._registered_ns = 0

    @property
    def outcome(self) -> RegistrationOutcome | None:
        """What the kubelet said last, None before it said anything."""
        return self._outcome

    def registered_ns(self) -> int:
        """When the kubelet last took the plugin (CLOCK_BOOTTIME, nanoseconds), 0 before it did."""
        return self._registered_ns

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """Answer the kubelet's question who is there."""
        with self._told:
            self._asked = True
        return self._info

    def notify(
        self, status: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Keep what the kubelet says of the registration."""
        with self._told:
            if status.plugin_registered:
                self._registered_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self._outcome = Registered() if status.plugin_registered else Refused(status.error)
            self._told.notify_all()
        self._on_outcome(status.plugin_registered)
        if status.plugin_registered:
            _log.info("registered with the kubelet", driver=self._info.name)
        else:
            _log.error("refused by the kubelet", driver=self._info.name, reason=status.error)
        return pb.RegistrationStatusResponse()

    def wait_registered(self, timeout_seconds: float) -> bool:
        """Wait until the kubelet took the plugin; False after the time, or after ``close``."""
        deadline = time.monotonic() + timeout_seconds
        with self._told:
            while not isinstance(self._outcome, Registered) and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._told.wait(left)
            return isinstance(self._outcome, Registered)

    def close(self) -> None:
        """Let everybody who waits go, when the plugin stops."""
        with self._told:
            self._closed = True
            self._told.notify_all()

    def explain_when_late(self, late_seconds: float = LATE_SECONDS) -> None:
        """Wait for the registration and log why there is none when it is late; for a thread of its own."""
        if self.wait_registered(late_seconds) or self._closed:
            return
        _log.error("not registered with the kubelet", seconds=late_seconds, why=self.why_not())

    def why_not(self) -> str:
        """Why the plugin is not registered, as far as it can tell; empty when it is."""
        match self._outcome:
            case Registered():
                return ""
            case Refused(reason):
                return f"the kubelet refused it: {reason}"
        if self._asked:
            return (
                f"the kubelet asked at {self._socket} but never said more: it could not use the service"
                f" socket {self._info.endpoint}; check that the kubelet sees that path, and its log"
            )
        return (
            f"the kubelet was never seen at {self._socket}: check that this is its plugins_registry folder"
            " (below --root-dir of the kubelet) and that it is mounted from the host"
        )


def handler(registration: Registration) -> grpc.GenericRpcHandler:
    """The handler of the Registration service."""
    return grpc.method_handlers_generic_handler(
        "pluginregistration.Registration",
        {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                registration.get_info,
                request_deserializer=pb.InfoRequest.FromString,
                response_serializer=pb.PluginInfo.SerializeToString,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                registration.notify,
                request_deserializer=pb.RegistrationStatus.FromString,
                response_serializer=pb.RegistrationStatusResponse.SerializeToString,
            ),
        },
    )
