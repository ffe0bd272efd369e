"""Timestamps and durations to the nanosecond, and functions on them.

As in cel-go, common/types/timestamp.go and duration.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kubernetes_rules.cel.types import DURATION, INT, STRING, TIMESTAMP, CelError, Overload, method

_NANOSECONDS = 10**9
_NEAR_BEGIN, _NEAR_END = -62_000_000_000, 253_000_000_000
"""Seconds since 1970 beyond which a time zone may lead out of the years 1 to 9999, the range of datetime."""
_LOWEST, _HIGHEST = -62_135_596_800, 253_402_300_799
"""The seconds since 1970 at the beginning of year 1 and the end of year 9999."""
_TWO_DAYS = 2 * 24 * 3600
_DAYS_OF_400_YEARS = 146_097
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As lenient as Go's time.Parse: the hour may have one digit, and a comma may precede the fraction.
_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "\u03bcs": 10**3, "ms": 10**6}
_UNITS |= {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


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
        """The seconds as a double, such as ``1.5s``."""
        whole, rest = divmod(abs(self.nanoseconds), _NANOSECONDS)
        seconds = whole + rest / 1e9
        text = f"{Decimal(repr(seconds)):f}".removesuffix(".0")
        return f"-{text}s" if self.nanoseconds < 0 else f"{text}s"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: nanoseconds since 1970. ``offset_seconds`` is the time zone that it is shown in."""

    nanoseconds: int
    offset_seconds: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """In the form of RFC 3339, without zeros at the end of the fraction."""
        seconds, rest = divmod(self.nanoseconds, _NANOSECONDS)
        seconds += self.offset_seconds
        # The calendar repeats every 400 years.
        years = 400 * ((seconds > _NEAR_END) - (seconds < _NEAR_BEGIN))
        local = _EPOCH + timedelta(days=-years * 146_097 // 400, seconds=seconds)
        fraction = f".{rest:09d}".rstrip("0").rstrip(".")
        minutes = abs(self.offset_seconds) // 60
        sign = "-" if self.offset_seconds < 0 else "+"
        zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if self.offset_seconds else "Z"
        return f"{local.year + years:04d}-{local:%m-%dT%H:%M:%S}{fraction}{zone}"


def duration(nanoseconds: int) -> Duration:
    """A duration. Raises CelError if it does not fit 64 bits."""
    if not -(2**63) <= nanoseconds < 2**63:
        raise CelError("duration overflow")
    return Duration(nanoseconds)


def timestamp(nanoseconds: int, offset_seconds: int = 0) -> Timestamp:
    """A point in time. Raises CelError outside the years 1 to 9999."""
    if not _LOWEST <= nanoseconds // _NANOSECONDS <= _HIGHEST:
        raise CelError("timestamp overflow")
    return Timestamp(nanoseconds, offset_seconds)


def difference(left: Timestamp, right: Timestamp) -> Duration:
    """The time between two timestamps. Raises CelError if a duration cannot hold it."""
    return duration(left.nanoseconds - right.nanoseconds)


def parse_duration(text: str) -> Duration:
    """The duration of ``1h30m``, ``-1.5s`` or ``0``, read as by Go's time.ParseDuration.

    Raises CelError for other text.
    """
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    while position < len(rest):
        match = _DURATION.match(rest, position)
        if match is None or not (match[1] or match[2]):
            break
        unit = _UNITS[match[3]]
        fraction = (match[2] or "")[:18]
        total += int(match[1] or "0") * unit if len(match[1]) < 25 else 2**70
        if fraction:
            total += int(float(int(fraction)) * (unit / float(10 ** len(fraction))))
        position = match.end()
    if not rest or position < len(rest) or total > 2**63 - (text[0] != "-"):
        raise CelError(f"{text[:64]!r} is no duration such as 1h30m")
    return Duration(-total if text[0] == "-" else total)


def parse_timestamp(text: str) -> Timestamp:
    """The timestamp of RFC 3339 text such as ``2026-01-02T03:04:05Z``. Raises CelError for other text."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise CelError(f"{text[:64]!r} is no timestamp such as 2026-01-02T03:04:05Z")
    year, month, day, hour, minute, second = (int(match[part]) for part in range(1, 7))
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            raise CelError(f"{text[:64]!r} has an impossible time zone")
        offset = (int(match[9]) * 60 + int(match[10])) * (-60 if match[8] == "-" else 60)
    try:
        local = datetime(max(year, 1), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise CelError(f"{text[:64]!r} is no timestamp: {error}") from error
    if year == 0:
        raise CelError("timestamp overflow")
    seconds = (local - _EPOCH) // timedelta(seconds=1) - offset
    return timestamp(seconds * _NANOSECONDS + int((match[7] or "")[:9].ljust(9, "0")), offset)


def _local(moment: Timestamp, zone: str) -> tuple[datetime, int]:
    """The time in a zone, to the second, and the years to add to it. Raises CelError for an unknown zone."""
    seconds, place = moment.nanoseconds // _NANOSECONDS, _zone(zone)
    # Near both ends of the calendar a time zone leads out of the years of datetime. The calendar repeats
    # every 400 years, so such times are computed 400 years away.
    years = 400 if seconds > _HIGHEST - _TWO_DAYS else -400 if seconds < _LOWEST + _TWO_DAYS else 0
    shifted = _EPOCH + (timedelta(seconds=seconds) - timedelta(days=years * _DAYS_OF_400_YEARS // 400))
    return shifted.astimezone(place), years


def _zone(name: str) -> tzinfo:
    hours, colon, minutes = name.partition(":")
    if not colon:
        return _named_zone(name)
    try:
        hour, minute = _decimal(hours), _decimal(minutes)
        offset = hour * 60 - minute if name[0] == "-" else hour * 60 + minute
        return timezone(timedelta(minutes=offset))
    except (ValueError, OverflowError) as error:
        raise CelError(f"{name[:64]!r} is no time zone") from error


def _decimal(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text[:100])


def _named_zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise CelError(f"unknown time zone {name[:64]}") from error


_PARTS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda local: local.year,
    "getMonth": lambda local: local.month - 1,
    "getDayOfYear": lambda local: local.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda local: local.day - 1,
    "getDate": lambda local: local.day,
    "getDayOfWeek": lambda local: local.isoweekday() % 7,
    "getHours": lambda local: local.hour,
    "getMinutes": lambda local: local.minute,
    "getSeconds": lambda local: local.second,
}


def _quotient(divisor: int) -> Callable[[Duration], int]:
    def whole(value: Duration) -> int:
        quotient = abs(value.nanoseconds) // divisor
        return -quotient if value.nanoseconds < 0 else quotient

    return whole


def _part_overloads(name: str, part: Callable[[datetime], int]) -> tuple[Overload, ...]:
    def call(moment: Timestamp, zone: str = "UTC") -> int:
        local, years = _local(moment, zone)
        return part(local) + (years if name == "getFullYear" else 0)

    return (method(name, (TIMESTAMP,), INT, call), method(name, (TIMESTAMP, STRING), INT, call))


def _milliseconds(moment: Timestamp, zone: str = "UTC") -> int:
    _local(moment, zone)
    return moment.nanoseconds % _NANOSECONDS // 1_000_000


OVERLOADS: tuple[Overload, ...] = (
    *(overload for name, part in _PARTS.items() for overload in _part_overloads(name, part)),
    method("getMilliseconds", (TIMESTAMP,), INT, _milliseconds),
    method("getMilliseconds", (TIMESTAMP, STRING), INT, _milliseconds),
    method("getHours", (DURATION,), INT, _quotient(3600 * _NANOSECONDS)),
    method("getMinutes", (DURATION,), INT, _quotient(60 * _NANOSECONDS)),
    method("getSeconds", (DURATION,), INT, _quotient(_NANOSECONDS)),
    method("getMilliseconds", (DURATION,), INT, _quotient(1_000_000)),
)
