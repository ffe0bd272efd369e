"""The health of the node's devices, kept for all open streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from driver.health.verdict import Health
from kubeletplugin.kubelet.wire.streams import Published, StreamCall

RESEND_SECONDS = 10.0
"""All devices are sent again after this time: the kubelet shows one as Unknown after its timeout of 30 s."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of one published device, and when it was determined."""

    pool: str
    device: str
    health: Health
    checked_unix_seconds: int


Devices = tuple[DeviceHealth, ...]


class HealthBoard:
    """The health of all devices of this node, for all open streams."""

    def __init__(self) -> None:
        """Start without a list, so that nothing is sent."""
        self._devices: Published[Devices | None] = Published(None)
        self._listeners: list[Callable[[Devices], None]] = []

    def on_update(self, listener: Callable[[Devices], None]) -> None:
        """Call ``listener`` with each list, from the thread that made it; it must return quickly."""
        self._listeners.append(listener)

    def update(self, devices: Devices) -> None:
        """Send this list, which must be complete: the kubelet forgets devices that are not in it."""
        self._devices.publish(devices)
        for listener in self._listeners:
            listener(devices)

    def close(self) -> None:
        """End all streams, when the plugin stops."""
        self._devices.close()

    def follow(self, call: StreamCall, resend_seconds: float = RESEND_SECONDS) -> Iterator[Devices]:
        """The list as soon as there is one, at each change and at intervals; raises TooManyStreams."""
        return (devices for devices in self._devices.follow(call, resend_seconds) if devices is not None)
