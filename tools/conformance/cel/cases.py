"""Selectors that a person wrote, each for a rule of its own, and the devices they look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tools.conformance.cel import cases_device, cases_language, cases_library

if TYPE_CHECKING:
    from tools.conformance.area import Case

DEVICE: dict[str, Any] = {
    "driver": "gpu.example.com",
    "attributes": {
        "model": {"string": "H100"},
        "index": {"int": 3},
        "mig": {"bool": False},
        "driverVersion": {"version": "550.54.15"},
        "other.example.com/model": {"string": "A100"},
        "other.example.com/zero": {"int": 0},
        "lists.example.com/names": {"strings": ["a", "b", "c"]},
        "lists.example.com/numbers": {"ints": [3, 1, 2]},
        "lists.example.com/flags": {"bools": [True, False]},
        "lists.example.com/versions": {"versions": ["1.0.0", "2.0.0-rc.1"]},
    },
    "capacity": {"memory": {"value": "80Gi"}, "other.example.com/cores": {"value": "1500m"}},
    "allowMultipleAllocations": False,
}
SHARED: dict[str, Any] = {"driver": "net.example.com", "allowMultipleAllocations": True}


def written() -> Iterator[Case]:
    """All written cases."""
    for cases in (cases_language.CASES, cases_device.CASES, cases_library.CASES):
        for expression in cases:
            yield {"op": "cel", "expression": expression, "device": DEVICE}
    for expression in cases_device.CASES:
        yield {"op": "cel", "expression": expression, "device": SHARED}
