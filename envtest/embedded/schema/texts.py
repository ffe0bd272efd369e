"""Reads bytes and times that JSON has as texts, as Go does, and refuses them in Go's words."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_ZONE = re.compile(r"Z|[+-][0-9]{2}:[0-9]{2}", re.ASCII)
_HEAD = (
    ("2006", "[0-9]{4}"),
    ("-", "-"),
    ("01", "[0-9]{2}"),
    ("-", "-"),
    ("02", "[0-9]{2}"),
    ("T", "T"),
    # Go takes an hour of one digit.
    ("15", "[0-9]{1,2}"),
    (":", ":"),
    ("04", "[0-9]{2}"),
    (":", ":"),
    ("05", "[0-9]{2}"),
)
"""The parts of a layout with the pattern of each."""
_RFC3339 = (*_HEAD, ("", "(?:[.,][0-9]+)?"), ("Z07:00", _ZONE.pattern))
_RFC3339_MICRO = (*_HEAD, (".000000", "[.,][0-9]{6}"), ("Z07:00", _ZONE.pattern))
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-2][0-9]:[0-9]{2}:[0-9]{2}"
_PLAIN = (re.compile(f"{_DATE}Z"), re.compile(f"{_DATE}[.][0-9]{{6}}Z"))
"""Times as they are stored: in seconds, and with microseconds."""


class TextError(ValueError):
    """The text cannot be read; the message is that of Go."""


def read_bytes(text: str) -> str:
    """The bytes that ``text`` has in base64, in base64 as Go writes them; raises TextError."""
    data = text.encode()
    found = data.replace(b"\r", b"").replace(b"\n", b"")
    try:
        return base64.b64encode(binascii.a2b_base64(found, strict_mode=True)).decode()
    except binascii.Error as error:
        raise TextError(f"illegal base64 data at input byte {_first_illegal(data)}") from error


def _first_illegal(data: bytes) -> int:
    """Where Go's base64.StdEncoding stops at wrong data (decodeQuantum)."""
    digits = 0
    for at, byte in enumerate(data):
        if byte in b"\r\n":
            continue
        if (chr(byte).isalnum() and byte < 128) or byte in b"+/":
            digits += 1
            continue
        if byte != ord("=") or digits % 4 < 2:
            return at
        rest = data[at + 1 :].lstrip(b"\r\n")
        if digits % 4 == 3:
            return len(data) - len(rest)
        if not rest:
            return len(data)
        start = len(data) - len(rest)
        return start - 1 if rest[:1] != b"=" else len(data) - len(rest[1:].lstrip(b"\r\n"))
    return len(data) - digits % 4


def read_time(text: str, *, is_micro: bool) -> str:
    """The time in UTC, in whole seconds or with microseconds (metav1.MicroTime); raises TextError."""
    if _PLAIN[is_micro].fullmatch(text):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            pass  # Go says what is out of range
        else:
            return text
    moment = _moment(text, is_micro=is_micro).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{moment.microsecond:06}Z" if is_micro else "Z")


def _moment(text: str, *, is_micro: bool) -> datetime:
    parts, at = [], 0
    for layout, pattern in _RFC3339_MICRO if is_micro else _RFC3339:
        match = re.compile(pattern, re.ASCII).match(text, at)
        if match is None:
            whole = _MICRO_LAYOUT if is_micro else _LAYOUT
            raise TextError(f'parsing time "{text}" as "{whole}": cannot parse "{text[at:]}" as "{layout}"')
        parts.append(match[0])
        at = match.end()
    if at < len(text):
        raise TextError(f'parsing time "{text}": extra text: "{text[at:]}"')
    return _checked(text, parts)


def _checked(text: str, parts: list[str]) -> datetime:
    year, month, day, hour, minute, second = (int(parts[index]) for index in (0, 2, 4, 6, 8, 10))
    bounds = (
        ("month", 1 <= month <= 12),
        ("hour", hour < 24),
        ("minute", minute < 60),
        ("second", second < 60),
    )
    for name, holds in bounds:
        if not holds:
            raise TextError(f'parsing time "{text}": {name} out of range')
    zone = "+00:00" if parts[12] == "Z" else parts[12]
    fraction = parts[11][1:7].ljust(6, "0")
    try:
        return datetime.fromisoformat(
            f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction}{zone}"
        )
    except ValueError as error:
        raise TextError(f'parsing time "{text}": day out of range') from error
