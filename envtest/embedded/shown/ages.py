"""Spans of time as kubectl shows them: ``5d``, ``3m20s``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def age_of(timestamp: str | None) -> str:
    """The time since then; ``<unknown>`` without a time."""
    if not timestamp:
        return "<unknown>"
    return duration_text(datetime.now(UTC) - datetime.fromisoformat(timestamp))


def time_taken(start: str | None, end: str | None) -> str:
    """The time from the start to the end, or until now without an end; empty without a start."""
    if not start:
        return ""
    return duration_text(
        (datetime.fromisoformat(end) if end else datetime.now(UTC)) - datetime.fromisoformat(start)
    )


def duration_text(span: timedelta) -> str:
    """A span of time as kubectl shows it, days without hours. Go: HumanDuration in apimachinery."""
    seconds = int(span.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 0:
        # The clock of the server may be a second ahead.
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    return f"{days}d"
