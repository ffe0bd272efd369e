"""Lets equal parts of stored objects be one part: slices are alike, and so take a fraction of the memory."""

from __future__ import annotations

import sys
from typing import Any

_MOST_PARTS = 200_000
_MOST_ENTRIES = 8
"""Larger maps and lists are hardly ever equal to another one; their entries are shared all the same."""


class Sharing:
    """A table of parts that have been seen. Shared parts must not be changed. Not thread-safe."""

    def __init__(self) -> None:
        self._parts: dict[Any, Any] = {}

    def shared(self, value: Any) -> Any:
        """An equal value made of parts that others may have too."""
        return self._share(value)[0]

    def _share(self, value: Any) -> tuple[Any, bool]:
        """The value, and whether it is in the table, so that its identity stands for it."""
        if isinstance(value, str):
            return self._kept(value, value) if len(value) < 128 else (value, False)
        if isinstance(value, dict):
            entries = [(sys.intern(key), *self._share(item)) for key, item in value.items()]
            copied: Any = {key: item for key, item, _ in entries}
            if len(entries) > _MOST_ENTRIES or not all(held for _, _, held in entries):
                return copied, False
            return self._kept(("map", *((key, id(item)) for key, item, _ in entries)), copied)
        if isinstance(value, list):
            items = [self._share(item) for item in value]
            copied = [item for item, _ in items]
            if len(items) > _MOST_ENTRIES or not all(held for _, held in items):
                return copied, False
            return self._kept(("list", *(id(item) for item in copied)), copied)
        return self._kept((type(value), value), value)

    def _kept(self, key: Any, value: Any) -> tuple[Any, bool]:
        found = self._parts.get(key, self)
        if found is not self:
            return found, True
        if len(self._parts) >= _MOST_PARTS:
            return value, False
        self._parts[key] = value
        return value, True
