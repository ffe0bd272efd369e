"""Adds our own writes to the reflector's copy of the slices until the watch has caught up with them.

A watch event arrives some time after the write. Without this, a sync right after a write would see the state
before it and create a slice twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

# The watch never confirms a write if the API server was restored from an older backup.
_KEPT_SECONDS = 60.0
"""How long a write counts that the watch does not confirm."""


class OwnWrites:
    """The objects of the reflector, with our own writes if they are newer. Used by one thread."""

    def __init__(self, snapshot: Callable[[], tuple[list[Object], str]]) -> None:
        """``snapshot`` gives the objects and the resourceVersion up to which they have all changes."""
        self._snapshot = snapshot
        self._written: dict[str, tuple[float, Object]] = {}
        self._deleted: set[str] = set()
        self._newest = 0

    def is_ours(self, item: Object) -> bool:
        """Whether a state of an object is not newer than our last write; for every thread."""
        return _version(item["metadata"].get("resourceVersion")) <= self._newest

    def wrote(self, item: Object) -> None:
        """Remember the server's answer to our create or update."""
        self._newest = max(self._newest, _version(item["metadata"].get("resourceVersion")))
        self._written[_uid(item)] = time.monotonic() + _KEPT_SECONDS, item

    def deleted(self, item: Object) -> None:
        """Remember that the object is gone."""
        # By UID, which is never used again; a new slice may get the same name.
        self._written.pop(_uid(item), None)
        self._deleted.add(_uid(item))

    def objects(self) -> list[Object]:
        """The newest known version of each object."""
        copied, seen = self._snapshot()
        by_uid = {_uid(item): item for item in copied}
        # Only what the watch still shows has to be hidden.
        self._deleted &= by_uid.keys()
        # Once the reflector has seen this resourceVersion or a higher one, its copy has our write, and also
        # every later change or deletion by others.
        self._written = {
            uid: (until, item)
            for uid, (until, item) in self._written.items()
            if _version(item["metadata"].get("resourceVersion")) > _version(seen) and time.monotonic() < until
        }
        by_uid.update((uid, item) for uid, (_, item) in self._written.items())
        return [item for uid, item in by_uid.items() if uid not in self._deleted]


def _uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))


def _version(text: object) -> int:
    """A resourceVersion as a number, 0 if it is none."""
    # Since Kubernetes 1.35 the API promises that resource versions are numbers that can be compared.
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0
