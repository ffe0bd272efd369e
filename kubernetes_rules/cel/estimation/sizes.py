"""Ranges of sizes, and sums and products that end at the largest number of 64 bits.

Source: cel-go, checker/cost.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

UNBOUNDED = 2**64 - 1
"""Stands for every number that is too large."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many characters, bytes, elements or entries a value has, at least and at most."""

    least: int
    most: int

    def union(self, other: Size) -> Size:
        """The range of both."""
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        """The size of the concatenation of two values."""
        return Size(plus(self.least, other.least), plus(self.most, other.most))

    def times(self, other: Size) -> Size:
        """The size of as many values as the other size says."""
        return Size(times(self.least, other.least), times(self.most, other.most))


UNKNOWN = Size(0, UNBOUNDED)


def fixed(size: int) -> Size:
    """A size that is known."""
    return Size(size, size)


def plus(*numbers: int) -> int:
    """The sum."""
    return min(sum(numbers), UNBOUNDED)


def times(one: int, other: int) -> int:
    """The product."""
    return min(one * other, UNBOUNDED)


def scaled(number: int, factor: float) -> int:
    """The product with a fraction, rounded up, computed with doubles as Go does it."""
    exact = float(number) * factor
    return UNBOUNDED if exact >= 2.0**64 else min(math.ceil(exact), UNBOUNDED)
