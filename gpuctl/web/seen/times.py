"""Moments as the Kubernetes API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def text_of(at: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime | None:
    """The moment that an object names, None for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def ago(since: str, now: str) -> str:
    """How long ago something was, in one word: ``12 s``, ``5 min``, ``3 h``, ``2 d``; empty if unknown."""
    begin, end = moment(since), moment(now)
    if begin is None or end is None:
        return ""
    seconds = max(0, int((end - begin).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
