"""Says what is wrong with the GPUs of a node, by the taints of their devices, for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from driver.devices.taints import TAINT_DRIVER
from driver.health.verdict import KINDS
from driver.process.metrics.reading import Reading

if TYPE_CHECKING:
    from driver.devices.device import Device

SICK = "gpu_dra_gpu_sick"

_OF_HEALTH = {*KINDS, TAINT_DRIVER}
"""The taints that say something about a GPU's health; the others say who else is in the way."""


def sick_numbers(devices: Iterable[Device]) -> Iterator[Reading]:
    """One series for each taint about the health of a GPU, however many of its devices have it."""
    uuids: dict[str, str] = {}
    found: set[tuple[str, str, str, str]] = set()
    for device in devices:
        if device.pci is None:
            continue
        pci, told = str(device.pci), device.attributes
        uuids[pci] = uuids.get(pci) or str(told.get("parentUUID", told.get("uuid", "")))
        found |= {
            (pci, taint.key, taint.value, taint.effect) for taint in device.taints if taint.key in _OF_HEALTH
        }
    for pci, key, value, effect in sorted(found):
        labels = {"uuid": uuids[pci], "pci_bus_id": pci, "key": key, "value": value, "effect": effect}
        yield Reading(SICK, labels, 1)
