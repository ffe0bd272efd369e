"""Reads and writes Kubernetes quantities (apimachinery's resource.Quantity) as exact numbers."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(
    r"^(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,4})?$",
    re.ASCII,
)
_BINARY = {
    suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL = {
    suffix: Decimal(10) ** power
    for suffix, power in {
        "n": -9,
        "u": -6,
        "m": -3,
        "k": 3,
        "M": 6,
        "G": 9,
        "T": 12,
        "P": 15,
        "E": 18,
    }.items()
}
_LARGEST = Decimal(2) ** 63 - 1
_NANO = Decimal("1e-9")


def parse_quantity(text: str) -> Decimal:
    """The number in base units that ``text`` (``80Gi``, ``1500m``, ``1e3``) stands for.

    As apimachinery does, what is finer than a billionth is rounded away from zero, and what is larger
    than 2^63-1 is capped. Raises ValueError when it is no quantity.
    """
    match = _QUANTITY.match(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(f"{text[:64]!r} is not a quantity such as 80Gi, 1500m or 1e3")
    suffix = match["suffix"] or ""
    number = Decimal(match["number"])
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        number = number.scaleb(int(suffix[1:]))
    elif suffix:
        number *= _BINARY.get(suffix) or _DECIMAL[suffix]
    magnitude = abs(number)
    if magnitude > _LARGEST:
        magnitude = _LARGEST
    elif magnitude % _NANO:
        magnitude = magnitude.quantize(_NANO, rounding="ROUND_UP")
    return magnitude if number >= 0 else -magnitude


def format_bytes(count: int) -> str:
    """A whole number of base units in the form that the API server keeps as it is: ``81559Mi``, ``7``."""
    if count:
        for suffix, factor in reversed(_BINARY.items()):
            if count % int(factor) == 0:
                return f"{count // int(factor)}{suffix}"
    return str(count)
