"""Reads how the containers of a claim divide its GPU memory: the field ``memory`` of SharedGpuConfig."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from driver.claims.fields import Fields
from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES

LARGEST_FACTOR = 1000
"""More than any GPU has of the smallest share: whoever wants all that is free says ``toFree``."""

_CONTAINER = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
"""What a container can be called (RFC 1123 label, ValidateDNS1123Label of k8s.io/kubernetes)."""


@dataclass(frozen=True, slots=True)
class Burst:
    """How far the containers of a share may go beyond what it guarantees, while nobody else needs that.

    ``factor`` is a multiple of the share; None where ``to_free`` lets them have all that no claim is
    guaranteed.
    """

    factor: Fraction | None = None
    to_free: bool = False


@dataclass(frozen=True, slots=True)
class MemoryDivision:
    """How the memory that a claim has of a GPU is divided among its containers; bytes.

    ``parts`` is what single containers get, by their names. The others have equal parts of the rest, at most
    ``each_bytes`` where that is not 0. ``burst`` counts only where a class says it.
    """

    parts: tuple[tuple[str, int], ...] = ()
    each_bytes: int = 0
    burst: Burst | None = None

    @property
    def is_burst_alone(self) -> bool:
        """Whether nothing is said of the containers, so that only a share is concerned."""
        return self.burst is not None and not self.parts and not self.each_bytes


def read_memory(document: Fields, *, of_class: bool) -> MemoryDivision | None:
    """What the field ``memory`` of a document says, None where it is not there.

    ``of_class`` is whether a DeviceClass carries the document: a burst takes memory that others may want, so
    an admin alone allows it.
    """
    said = document.values.get("memory")
    fields = document.nested("memory")
    if said is None:
        return None
    named = fields.nested("parts")
    for name in named.values:
        if not _CONTAINER.fullmatch(name):
            named.wrong(name[:64], "is no name that a container can have")
    parts = tuple(
        (name, part_bytes)
        for name, value in named.values.items()
        if (part_bytes := named.quantity_bytes(name[:64], value, SMALLEST_LIMIT_BYTES)) is not None
    )
    each_bytes = fields.quantity_bytes("each", fields.values.pop("each", None), SMALLEST_LIMIT_BYTES) or 0
    burst = _burst(fields, of_class=of_class)
    fields.end()
    return MemoryDivision(tuple(sorted(parts)), each_bytes, burst)


def _burst(memory: Fields, *, of_class: bool) -> Burst | None:
    said = memory.values.get("burst")
    fields = memory.nested("burst")
    if said is None:
        return None
    if not of_class:
        memory.wrong("burst", "counts in a DeviceClass alone: use a class that allows it, or leave it out")
    is_empty_or_twice = (fields.values.get("factor") is not None) == (fields.values.get("toFree") is True)
    if isinstance(said, Mapping) and is_empty_or_twice:
        memory.wrong("burst", "must have either factor or toFree: true")
    burst = Burst(_factor(fields), fields.boolean("toFree"))
    fields.end()
    return burst


def _factor(fields: Fields) -> Fraction | None:
    value = fields.values.pop("factor", None)
    if value is None:
        return None
    if type(value) not in (int, float) or not 1 <= value <= LARGEST_FACTOR:
        fields.wrong("factor", f"must be a number from 1 to {LARGEST_FACTOR}")
        return None
    return Fraction(str(value))
