"""The health of the node's devices, kept for every stream that is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kubeletplugin.kubelet.wire.streams import Published, StreamCall

RESEND_SECONDS = 10.0
"""A device becomes Unknown when it is not heard of within its timeout, so all are sent again."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How one published device is.

    ``checked_unix_seconds`` is when that was found out; ``message`` says why it is not healthy
    (the kubelet cuts it at 1024 characters), and ``reason`` the same in one word, empty where there is none.
    """

    pool: str
    device: str
    health: Literal["unknown", "healthy", "unhealthy"]
    checked_unix_seconds: int
    message: str = ""
    reason: str = ""


Devices = tuple[DeviceHealth, ...]


class HealthBoard:
    """The health of all devices of this node, for every stream that is open."""

    def __init__(self) -> None:
        """Begin with nothing known, so that nothing is sent."""
        self._devices: Published[Devices | None] = Published(None)
        self._listeners: list[Callable[[Devices], None]] = []

    def on_update(self, listener: Callable[[Devices], None]) -> None:
        """Call it with each list that is sent, from the thread that found it out; it may not take long."""
        self._listeners.append(listener)

    @property
    def version(self) -> int:
        """How many times the list changed."""
        return self._devices.version

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
