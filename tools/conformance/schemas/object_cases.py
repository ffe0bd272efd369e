"""Cases of custom objects, each for one rule."""

from __future__ import annotations

from collections.abc import Iterator

from tools.conformance.area import Case


def written_objects() -> Iterator[Case]:
    """All cases."""
    yield from ()
