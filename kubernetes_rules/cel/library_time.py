"""The values of timestamps and durations, to the nanosecond (cel-go common/types)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from kubernetes_rules.cel.types import CelError

NANOSECONDS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEAR_BEGIN, _NEAR_END = -62_000_000_000, 253_000_000_000
"""Seconds from 1970, beyond which a time zone may lead out of the years 1 to 9999 that datetime has."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time in nanoseconds, at most 2^63-1 of them."""

    nanoseconds: int

    def __add__(self, other: Duration) -> Duration:
        total = self.nanoseconds + other.nanoseconds
        if not -(2**63) <= total < 2**63:
            raise CelError("integer overflow")
        return Duration(total)

    def __str__(self) -> str:
        """Its seconds as a double, such as ``1.5s``."""
        whole, rest = divmod(abs(self.nanoseconds), NANOSECONDS)
        seconds = whole + rest / 1e9
        text = f"{Decimal(repr(seconds)):f}".removesuffix(".0")
        return f"-{text}s" if self.nanoseconds < 0 else f"{text}s"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: nanoseconds since 1970. ``offset_seconds`` is the time zone that it is shown in."""

    nanoseconds: int
    offset_seconds: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """As RFC 3339 has it, without zeros at the end of the fraction."""
        seconds, rest = divmod(self.nanoseconds, NANOSECONDS)
        seconds += self.offset_seconds
        years = 400 * (
            (seconds > _NEAR_END) - (seconds < _NEAR_BEGIN)
        )  # so much on, the calendar is the same
        local = _EPOCH + timedelta(days=-years * 146_097 // 400, seconds=seconds)
        fraction = f".{rest:09d}".rstrip("0").rstrip(".")
        minutes = abs(self.offset_seconds) // 60
        sign = "-" if self.offset_seconds < 0 else "+"
        zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if self.offset_seconds else "Z"
        return f"{local.year + years:04d}-{local:%m-%dT%H:%M:%S}{fraction}{zone}"
