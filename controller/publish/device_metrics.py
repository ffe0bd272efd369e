"""Metrics of the published devices: how many there are in each state, and what is wrong with their GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from driver.devices.device import Device
from driver.devices.region import Region, overlap
from driver.devices.taints import TAINT_DRIVER
from driver.health.verdict import KIND_OF_TAINT
from driver.kinds.kind import DeviceName
from driver.kinds.registry import KINDS
from driver.kinds.sharing.kind import SHARING
from driver.process.metrics.table import Reading

State = Literal["free", "allocated", "excluded", "tainted"]

OFFERED_SERIES = ("gpu_dra_devices",)
SICK = "gpu_dra_gpu_sick"

_OF_HEALTH = {*KIND_OF_TAINT, TAINT_DRIVER}
"""The keys of taints about a GPU's health; other taints have other reasons."""


def offered_numbers(devices: Sequence[Device], held: frozenset[str]) -> Iterator[Reading]:
    """The number of devices of each kind and profile in each state; claims hold those in ``held``."""
    names = [name for device in held if (name := KINDS.parse(device)) is not None]
    offered = {device.name: device.regions for device in devices}
    taken = tuple(region for name in names for region in offered.get(name.device, name.regions))
    found = Counter((*_kind_and_profile(device), _state_of(device, held, taken)) for device in devices)
    for (kind, profile, state), count in sorted(found.items()):
        yield Reading("gpu_dra_devices", {"kind": kind, "profile": profile, "state": state}, count)


def _state_of(device: Device, held: frozenset[str], taken: tuple[Region, ...]) -> State:
    """Whether a scheduler could hand it out: the first that is true of tainted, allocated, excluded, free.

    A shared device counts as allocated from its first share on. ``taken`` is what the held devices take.
    """
    if any(taint.effect != "None" for taint in device.taints):
        return "tainted"
    if device.name in held:
        return "allocated"
    return "excluded" if overlap(device.regions, taken) else "free"


def _kind_and_profile(device: Device) -> tuple[str, str]:
    name: DeviceName | None = KINDS.parse(device.name)
    kind = "unknown" if name is None else name.kind.word
    if name is not None and name.shared is not None and not name.shared.fractional:
        kind = SHARING[name.shared.strategy]
    return kind, str(device.attributes.get("profile", ""))


def sick_numbers(devices: Iterable[Device]) -> Iterator[Reading]:
    """One series for each taint about the health of a GPU, however many of its devices have it."""
    uuids: dict[str, str] = {}
    found: set[tuple[str, str, str, str]] = set()
    for device in devices:
        if device.pci is None:
            continue
        pci, attributes = str(device.pci), device.attributes
        # A partition has the UUID of its GPU as parentUUID, and maybe one of its own.
        uuids[pci] = uuids.get(pci) or str(attributes.get("parentUUID", attributes.get("uuid", "")))
        found |= {
            (pci, taint.key, taint.value, taint.effect) for taint in device.taints if taint.key in _OF_HEALTH
        }
    for pci, key, value, effect in sorted(found):
        labels = {"uuid": uuids[pci], "pci_bus_id": pci, "key": key, "value": value, "effect": effect}
        yield Reading(SICK, labels, 1)
