"""Counts what a node offers, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from driver.devices.region import overlap
from driver.process.metrics.reading import Reading

if TYPE_CHECKING:
    from driver.devices.device import Device
    from driver.devices.region import Region
    from driver.kinds.kind import DeviceName, Kinds

State = Literal["free", "allocated", "excluded", "tainted"]

OFFERED_SERIES = ("gpu_dra_devices",)

_SHARED = {"TimeSlicing": "time-slicing", "MPS": "mps"}
_PROFILE = "profile"


def offered_numbers(devices: Sequence[Device], held: frozenset[str], kinds: Kinds) -> Iterator[Reading]:
    """How many devices of each kind and profile are in each state; claims hold those in ``held``."""
    names = [name for device in held if (name := kinds.parse(device)) is not None]
    offered = {device.name: device.regions for device in devices}
    taken = tuple(region for name in names for region in offered.get(name.device, name.regions))
    found = Counter((*_kind_and_profile(device, kinds), state_of(device, held, taken)) for device in devices)
    for (kind, profile, state), count in sorted(found.items()):
        yield Reading("gpu_dra_devices", {"kind": kind, "profile": profile, "state": state}, count)


def state_of(device: Device, held: frozenset[str], taken: tuple[Region, ...]) -> State:
    """Whether a scheduler could hand it out: the first that holds of tainted, allocated, excluded, free.

    A shared device is allocated from its first share on. ``taken`` is what the held devices take of GPUs.
    """
    if any(taint.effect != "None" for taint in device.taints):
        return "tainted"
    if device.name in held:
        return "allocated"
    return "excluded" if overlap(device.regions, taken) else "free"


def _kind_and_profile(device: Device, kinds: Kinds) -> tuple[str, str]:
    name: DeviceName | None = kinds.parse(device.name)
    kind = "unknown" if name is None else name.kind.word
    if name is not None and name.shared is not None and not name.shared.fractional:
        kind = _SHARED[name.shared.strategy]
    return kind, str(device.attributes.get(_PROFILE, ""))
