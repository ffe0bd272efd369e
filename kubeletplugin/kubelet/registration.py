"""Registers the plugin with the kubelet, and keeps the kubelet's answer.

The kubelet finds the registration socket in its plugins_registry folder, calls GetInfo with a deadline of one
second, connects to the service socket and then reports whether it accepted the plugin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from driver.process.log import get_logger
from kubeletplugin.kubelet.dra_service import DRA_V1
from kubeletplugin.kubelet.health_stream import HEALTH_V1, HEALTH_V1ALPHA1
from kubeletplugin.kubelet.wire.server import unary_method
from proto import registration_v1_pb2 as pb

SUPPORTED_VERSIONS = (DRA_V1, HEALTH_V1, HEALTH_V1ALPHA1)
"""Since 1.37 the kubelet opens the health stream only if a health service is in the list."""

LATE_SECONDS = 30.0
"""After this time without a registration, the reason is logged."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """The kubelet accepted the plugin."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The kubelet did not accept the plugin; ``reason`` is its own message. It will try again."""

    reason: str


RegistrationOutcome = Registered | Refused


class Registration:
    """What the kubelet learns about the plugin, and its last answer."""

    def __init__(
        self,
        driver: str,
        endpoint: Path,
        registration_socket: Path,
        on_outcome: Callable[[bool], None] = lambda _registered: None,
    ) -> None:
        """Announce ``driver``, served at the socket ``endpoint``.

        ``registration_socket`` is where the kubelet should find the plugin, for messages. ``on_outcome``
        is called with each answer: whether the kubelet accepted the plugin.
        """
        self._on_outcome = on_outcome
        self._info = pb.PluginInfo(
            # The kubelet's watcher of plugins passes this type to its DRA manager.
            type="DRAPlugin",
            name=driver,
            endpoint=str(endpoint),
            supported_versions=SUPPORTED_VERSIONS,
        )
        self._socket = registration_socket
        self._changed = threading.Condition()
        self._outcome: RegistrationOutcome | None = None
        self._asked = False
        self._closed = False
        self._registered_ns = 0

    @property
    def outcome(self) -> RegistrationOutcome | None:
        """The kubelet's last answer, None before the first."""
        return self._outcome

    def registered_ns(self) -> int:
        """When the kubelet last accepted the plugin (CLOCK_BOOTTIME, nanoseconds), 0 if never."""
        return self._registered_ns

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """Answer the kubelet's first call."""
        with self._changed:
            self._asked = True
        return self._info

    def notify(
        self, status: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Keep the kubelet's answer."""
        with self._changed:
            # Called for each start of the kubelet, which registers the plugin again.
            if status.plugin_registered:
                # Unlike CLOCK_MONOTONIC, this clock also counts the time that the machine is suspended.
                self._registered_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self._outcome = Registered() if status.plugin_registered else Refused(status.error)
            self._changed.notify_all()
        self._on_outcome(status.plugin_registered)
        if status.plugin_registered:
            _log.info("registered with the kubelet", driver=self._info.name)
        else:
            _log.error("the kubelet refused the registration", driver=self._info.name, reason=status.error)
        return pb.RegistrationStatusResponse()

    def wait_registered(self, timeout_seconds: float) -> bool:
        """Wait until the kubelet accepts the plugin; False after the timeout, or after ``close``."""
        with self._changed:
            self._changed.wait_for(
                lambda: isinstance(self._outcome, Registered) or self._closed, timeout_seconds
            )
            return isinstance(self._outcome, Registered)

    def close(self) -> None:
        """End all waits, when the plugin stops."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def explain_when_late(self, late_seconds: float = LATE_SECONDS) -> None:
        """Wait for the registration and log the reason if it is late; runs in a thread of its own."""
        if self.wait_registered(late_seconds) or self._closed:
            return
        _log.error("not registered with the kubelet", seconds=late_seconds, why=self.why_not())

    def why_not(self) -> str:
        """Why the plugin is not registered, as far as can be seen from here; empty if it is."""
        match self._outcome:
            case Registered():
                return ""
            case Refused(reason):
                return f"the kubelet refused it: {reason}"
        # After GetInfo the kubelet connects to the service socket, and gives up the attempt if that fails.
        if self._asked:
            return (
                f"the kubelet connected to {self._socket} but did not finish the registration: it could "
                f"not use the service socket {self._info.endpoint}; check that the kubelet sees that path, "
                "and its log"
            )
        return (
            f"the kubelet never connected to {self._socket}: check that this is its plugins_registry "
            "folder (below --root-dir of the kubelet) and that it is mounted from the host"
        )


def handler(registration: Registration) -> grpc.GenericRpcHandler:
    """The handler of the Registration service."""
    return grpc.method_handlers_generic_handler(
        "pluginregistration.Registration",
        {
            "GetInfo": unary_method(registration.get_info, pb.InfoRequest, pb.PluginInfo),
            "NotifyRegistrationStatus": unary_method(
                registration.notify, pb.RegistrationStatus, pb.RegistrationStatusResponse
            ),
        },
    )
