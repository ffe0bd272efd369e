"""Quantities of capacity and counters as integers of billionths, which are quick to add and compare."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from kubernetes_rules.errors import AllocationFailed
from kubernetes_rules.quantity import Quantity

_MOST_DIGITS = 30_000
_NANO_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity, and the same number in billionths, the finest that a quantity can have."""

    quantity: Quantity
    nanos: int


def amount_of(quantity: Quantity) -> Amount:
    """The amount of a quantity. Raises AllocationFailed for a number of more than 30,000 digits."""
    negative, digits, exponent = quantity.value.as_tuple()
    if not isinstance(exponent, int) or exponent > _MOST_DIGITS:
        raise AllocationFailed(f"a quantity has more than {_MOST_DIGITS} digits", "correct the object")
    unscaled = int("".join(map(str, digits)))
    shift = exponent + _NANO_DIGITS
    nanos = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    return Amount(quantity, -nanos if negative else nanos)


def read_amount(value: Any) -> Amount:
    """The amount of a JSON value: ``"80Gi"``, or a number; None is zero.

    Raises AllocationFailed if it is not a quantity.
    """
    if value is None:
        return _parse("0")
    # In JSON a quantity may also be a number. A bool is not one, although Python's is an int.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AllocationFailed(f"{value!r} is not a quantity", "write one such as 80Gi")
    return _parse(str(value).strip())


def left_text(whole: Amount, used: int) -> str:
    """What is left of an amount, in its format; 0 if more is used than it has. ``used`` is in billionths."""
    left = max(0, whole.nanos - used)
    return str(Quantity(Decimal(left).scaleb(-_NANO_DIGITS), whole.quantity.format))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Amount:
    try:
        return amount_of(Quantity.parse(text))
    except ValueError as error:
        raise AllocationFailed(str(error), "correct the object") from error
