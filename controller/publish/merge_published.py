"""Lays our own writes over the reflector's copy until the watch has caught up with them.

Without it a sync that follows a write at once would see the state before it, and create a slice twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

_KEPT_SECONDS = 60.0
"""How long a write counts that the watch never confirms: an API server that was set back forgets it."""


class Overlay:
    """The objects as the reflector has them, and our own writes where they are newer.

    A write counts until the reflector has seen its resourceVersion or a higher one: from then on the
    copy knows what became of it, a foreign change or deletion included. Used by one thread.
    """

    def __init__(self, snapshot: Callable[[], tuple[list[Object], str]]) -> None:
        """``snapshot`` gives the objects and the resourceVersion up to which all changes are in them."""
        self._snapshot = snapshot
        self._written: dict[str, tuple[float, Object]] = {}
        self._deleted: set[str] = set()

    def wrote(self, item: Object) -> None:
        """Remember the server's answer to our create or update."""
        self._written[_uid(item)] = time.monotonic() + _KEPT_SECONDS, item

    def deleted(self, item: Object) -> None:
        """Remember that the object is gone: its UID never comes back."""
        self._written.pop(_uid(item), None)
        self._deleted.add(_uid(item))

    def objects(self) -> list[Object]:
        """The newest that is known of each object."""
        copied, seen = self._snapshot()
        by_uid = {_uid(item): item for item in copied}
        self._deleted &= by_uid.keys()
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
    """A resourceVersion as the number that it is since Kubernetes 1.35 by contract; 0 when it is none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0
