"""Remembers how the devices of the node are, as the health stream tells the kubelet, for claims' status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from kubeletplugin.kubelet.wire.health_board import DeviceHealth, Devices

Key = tuple[str, str]
"""A device by its pool and the name that its claim's allocation has for it."""


@dataclass(frozen=True, slots=True)
class Ill:
    """What is wrong with a device: the status, the reason and the message of its condition Ready.

    ``Unknown`` is a device of which nobody can tell.
    """

    status: Literal["False", "Unknown"]
    reason: str
    message: str


Healths = Mapping[Key, Ill | None]
"""By device, None for one that is well; one that is missing was not looked at yet."""

_WORDS: Mapping[str, tuple[Literal["False", "Unknown"], str]] = {
    "unhealthy": ("False", "Unhealthy"),
    "unknown": ("Unknown", "Unknown"),
}


class HealthMemory:
    """Hears each look at the devices, and tells when one changed something.

    A device of which nobody can tell is told of when two looks in a row find it so: a driver that is busy for
    a moment changes the status of no claim.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[Key, Ill | None] | None = None
        self._doubted: frozenset[Key] = frozenset()

    def told(self) -> Healths | None:
        """How the devices are, None before the first look."""
        return self._known

    def heard(self, devices: Devices) -> None:
        """Take in a look at all devices."""
        doubted = frozenset((one.pool, one.device) for one in devices if one.health == "unknown")
        before, sure = self._known, doubted & self._doubted
        known: dict[Key, Ill | None] = {}
        for one in devices:
            key = one.pool, one.device
            if before is not None and key in doubted and key not in sure and key in before:
                known[key] = before[key]
            else:
                known[key] = _ill(one)
        self._known, self._doubted = known, doubted
        if known != before:
            self._changed()


def _ill(device: DeviceHealth) -> Ill | None:
    if device.health == "healthy":
        return None
    status, word = _WORDS[device.health]
    return Ill(status, device.reason or word, device.message)
