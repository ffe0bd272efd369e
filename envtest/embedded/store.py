"""Holds the objects with their resourceVersions and the history that watches are served from."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Object = dict[str, Any]
Collection = tuple[str, str]
"""API group and resource: all versions of a resource share their objects."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object after it (before it, for DELETED) and the object before it."""

    resource_version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    item: Object
    previous: Object | None


class Store:
    """All objects and every change since the last compaction. Thread-safe.

    Objects are never changed once they are stored: a writer puts another one in their place.
    ``changed`` is held during each access and notified after each change.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._objects: dict[Collection, dict[Key, Object]] = {}
        self._history: dict[Collection, list[Change]] = {}
        self._resource_version = 1
        self._compacted = 0

    @property
    def resource_version(self) -> int:
        """The version of the last write."""
        with self.changed:
            return self._resource_version

    @property
    def compacted(self) -> int:
        """Watches from a version below this one are answered 410."""
        return self._compacted

    def get(self, collection: Collection, key: Key) -> Object | None:
        """The stored object; not to be changed."""
        with self.changed:
            return self._objects.get(collection, {}).get(key)

    def items(self, collection: Collection) -> list[tuple[Key, Object]]:
        """All objects of the collection in the order of a list: by namespace, then name."""
        with self.changed:
            return sorted(self._objects.get(collection, {}).items(), key=lambda entry: entry[0])

    def put(self, collection: Collection, key: Key, item: Object) -> Object:
        """Store ``item`` with the next resourceVersion; the answer is the stored object."""
        with self.changed:
            objects = self._objects.setdefault(collection, {})
            previous = objects.get(key)
            stored = self._stamped(item)
            objects[key] = stored
            self._record(collection, "MODIFIED" if previous else "ADDED", stored, previous)
            return stored

    def remove(self, collection: Collection, key: Key) -> Object:
        """Remove the object; the answer is what it was, with the version of its removal."""
        with self.changed:
            previous = self._objects[collection].pop(key)
            last = self._stamped(previous)
            self._record(collection, "DELETED", last, previous)
            return last

    def changes_after(self, collection: Collection, resource_version: int) -> list[Change]:
        """The changes with a higher version, oldest first."""
        with self.changed:
            history = self._history.get(collection, [])
            return [change for change in history if change.resource_version > resource_version]

    def compact(self) -> None:
        """Forget the history: continue tokens and watches from before are answered 410."""
        with self.changed:
            self._history.clear()
            self._resource_version += 1
            self._compacted = self._resource_version

    def notify(self) -> None:
        """Wake everybody who waits, for a reason outside of the store."""
        with self.changed:
            self.changed.notify_all()

    def _stamped(self, item: Object) -> Object:
        self._resource_version += 1
        metadata = {**item.get("metadata", {}), "resourceVersion": str(self._resource_version)}
        return {**item, "metadata": metadata}

    def _record(
        self,
        collection: Collection,
        kind: Literal["ADDED", "MODIFIED", "DELETED"],
        item: Object,
        previous: Object | None,
    ) -> None:
        change = Change(self._resource_version, kind, item, previous)
        self._history.setdefault(collection, []).append(change)
        self.changed.notify_all()


@dataclass(slots=True)
class Watch:
    """One watch on the store: what has been sent, and what a selector lets through."""

    store: Store
    collection: Collection
    resource_version: int
    selects: Callable[[Object], bool]

    def wait(self, deadline: float, ended: Callable[[], bool]) -> None:
        """Wait for a change until ``deadline`` (a moment of time.monotonic) or ``ended``."""
        with self.store.changed:
            self.store.changed.wait_for(
                lambda: ended() or bool(self.store.changes_after(self.collection, self.resource_version)),
                max(0.0, deadline - time.monotonic()),
            )

    def take_events(self) -> list[tuple[str, Object]]:
        """The events since the last call; afterwards ``resource_version`` is that of the whole store.

        An object that a change moves in or out of the selection is ADDED or DELETED, as the API has it.
        """
        with self.store.changed:
            changes = self.store.changes_after(self.collection, self.resource_version)
            self.resource_version = max(self.resource_version, self.store.resource_version)
        return [event for event in map(self._selected, changes) if event is not None]

    def _selected(self, change: Change) -> tuple[str, Object] | None:
        was = change.previous is not None and self.selects(change.previous)
        now = change.type != "DELETED" and self.selects(change.item)
        if was and now:
            return "MODIFIED", change.item
        if now:
            return "ADDED", change.item
        if was and change.previous is not None:
            version = str(change.resource_version)
            metadata = {**change.previous["metadata"], "resourceVersion": version}
            return "DELETED", {**change.previous, "metadata": metadata}
        return None
