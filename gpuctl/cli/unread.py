"""What could not be read, of a cluster or of a node, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read, and why."""

    why: str


Listed = tuple[dict[str, Any], ...] | Unread
"""Objects of a kind, or why they could not be listed."""


def items_of(listed: Listed) -> tuple[dict[str, Any], ...]:
    """The objects; none where they could not be listed."""
    return () if isinstance(listed, Unread) else listed
