"""Quantities of capacity and counters, in the form in which they are added and compared quickly."""

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
    """A quantity, and the same number in billionths, which no quantity is finer than."""

    quantity: Quantity
    nanos: int


def amount_of(quantity: Quantity) -> Amount:
    """Raises AllocationFailed for a number of more than 30,000 digits."""
    negative, digits, exponent = quantity.value.as_tuple()
    if not isinstance(exponent, int) or exponent > _MOST_DIGITS:
        raise AllocationFailed(f"a quantity has more than {_MOST_DIGITS} digits", "correct the object")
    unscaled = int("".join(map(str, digits)))
    shift = exponent + _NANO_DIGITS
    nanos = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    return Amount(quantity, -nanos if negative else nanos)


def read_amount(value: Any) -> Amount:
    """The amount that a JSON value stands for: ``"80Gi"``, or a number; absent is zero.

    Raises AllocationFailed when it is no quantity.
    """
    if value is None:
        return _parse("0")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AllocationFailed(f"{value!r} is not a quantity", "write one such as 80Gi")
    return _parse(str(value).strip())


def left_text(whole: Amount, used: int) -> str:
    """What is left of an amount, written as that is; nothing where more is used than there is.

    ``used`` is in billionths.
    """
    left = max(0, whole.nanos - used)
    return str(Quantity(Decimal(left).scaleb(-_NANO_DIGITS), whole.quantity.format))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Amount:
    try:
        return amount_of(Quantity.parse(text))
    except ValueError as error:
        raise AllocationFailed(str(error), "correct the object") from error
