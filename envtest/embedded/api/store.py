"""Keeps the objects with their resourceVersions, and the history from which watches are served."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal
from weakref import WeakSet

Object = dict[str, Any]
Collection = tuple[str, str]
"""API group and resource: all versions of a resource share their objects."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

_KEPT_CHANGES = 2_000
"""How many changes of each collection are remembered."""

_version_of = attrgetter("resource_version")


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object after it (before it, for DELETED) and the object before it."""

    resource_version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    item: Object
    previous: Object | None


@dataclass(slots=True)
class _History:
    """The last changes of one collection: none after the version ``floor`` is missing."""

    changes: list[Change] = field(default_factory=list)
    floor: int = 0


class Expired(Exception):
    """Changes that a watch has not taken yet were forgotten; ``floor`` is the version of the last of them."""

    def __init__(self, asked: int, floor: int) -> None:
        super().__init__(f"too old resource version: {asked} ({floor})")


class Store:
    """All objects and their last changes. Thread-safe.

    Objects are never changed once they are stored: a writer puts another one in their place.
    ``changed`` is held during each access. A change of an object does not notify it, but the conditions of
    that object's collection. The oldest of many changes of a collection are forgotten. Each of ``listeners``
    is called with every change while the store is held, and may write on.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self.listeners: list[Callable[[Collection, Change], None]] = []
        self._objects: dict[Collection, dict[Key, Object]] = {}
        self._sorted: dict[Collection, list[Key]] = {}
        self._history: dict[Collection, _History] = defaultdict(_History)
        self._conditions: dict[Collection, WeakSet[threading.Condition]] = defaultdict(WeakSet)
        self._dependents: dict[str, set[tuple[Collection, Key]]] = defaultdict(set)
        self._resource_version = 1
        self._compacted = 0

    @property
    def resource_version(self) -> int:
        """The version of the last write."""
        with self.changed:
            return self._resource_version

    @property
    def compacted(self) -> int:
        """Watches of any collection from a version below this one are answered 410."""
        return self._compacted

    def oldest(self, collection: Collection) -> int:
        """Watches of the collection from a version below this one are answered 410."""
        return max(self._compacted, self.floor(collection))

    def floor(self, collection: Collection) -> int:
        """The version of the last change of the collection that is forgotten."""
        with self.changed:
            return self._history[collection].floor

    def last_change(self, collection: Collection) -> int:
        """The version of the last change of the collection, 0 where there was none."""
        with self.changed:
            history = self._history[collection]
            return history.changes[-1].resource_version if history.changes else history.floor

    def condition(self, *collections: Collection) -> threading.Condition:
        """A condition that is notified after each change of these collections, and by ``notify``.

        Its lock is that of ``changed``. It is dropped with the last reference to it.
        """
        with self.changed:
            condition = threading.Condition(self._lock)
            for collection in collections:
                self._conditions[collection].add(condition)
            return condition

    def get(self, collection: Collection, key: Key) -> Object | None:
        """The stored object; not to be changed."""
        with self.changed:
            return self._objects.get(collection, {}).get(key)

    def items(self, collection: Collection) -> list[tuple[Key, Object]]:
        """All objects of the collection in the order of a list: by namespace, then name."""
        with self.changed:
            objects = self._objects.get(collection, {})
            keys = self._sorted.get(collection)
            if keys is None:
                keys = self._sorted[collection] = sorted(objects)
            return [(key, objects[key]) for key in keys]

    def in_namespace(self, collection: Collection, namespace: str) -> list[Object]:
        """The objects of the collection in one namespace, in no order."""
        with self.changed:
            return [item for key, item in self._objects.get(collection, {}).items() if key[0] == namespace]

    def dependents(self, uid: str) -> list[tuple[Collection, Key]]:
        """Which objects have an owner with that UID."""
        with self.changed:
            return sorted(self._dependents.get(uid, ()))

    def put(self, collection: Collection, key: Key, item: Object) -> Object:
        """Store ``item`` with the next resourceVersion; returns the stored object."""
        with self.changed:
            objects = self._objects.setdefault(collection, {})
            previous = objects.get(key)
            # etcd counts all writes of all collections with one revision; so does this store.
            stored = self._stamped(item)
            objects[key] = stored
            # An object that was there already keeps its place.
            if previous is None:
                self._sorted.pop(collection, None)
            self._index(collection, key, previous, stored)
            self._record(collection, "MODIFIED" if previous else "ADDED", stored, previous)
            return stored

    def remove(self, collection: Collection, key: Key) -> Object:
        """Remove the object; returns its last state, with the version of the removal."""
        with self.changed:
            previous = self._objects[collection].pop(key)
            self._sorted.pop(collection, None)
            # A deletion has a version of its own, from which a watch goes on.
            last = self._stamped(previous)
            self._index(collection, key, previous, None)
            self._record(collection, "DELETED", last, previous)
            return last

    def changes_after(self, collection: Collection, resource_version: int) -> list[Change]:
        """The changes with a higher version, oldest first."""
        with self.changed:
            changes = self._history[collection].changes
            if not changes or changes[-1].resource_version <= resource_version:
                return []
            return changes[bisect_right(changes, resource_version, key=_version_of) :]

    def at_version(self, collection: Collection, resource_version: int) -> list[tuple[Key, Object]]:
        """The objects as they were at an earlier version, as far back as the changes are kept."""
        with self.changed:
            objects = dict(self.items(collection))
            for change in reversed(self.changes_after(collection, resource_version)):
                metadata = change.item["metadata"]
                key = (metadata.get("namespace", ""), metadata["name"])
                if change.previous is None:
                    objects.pop(key, None)
                else:
                    objects[key] = change.previous
            return sorted(objects.items(), key=lambda entry: entry[0])

    def compact(self) -> None:
        """Answer continue tokens and new watches from before with 410, as after a compaction of etcd.

        Watches that run go on: kube-apiserver serves them from its cache.
        """
        with self.changed:
            self._resource_version += 1
            # Higher than every version that a client has seen so far.
            self._compacted = self._resource_version

    def notify(self) -> None:
        """Wake all that wait on ``changed`` or on a condition, for a reason outside of the store."""
        with self.changed:
            waiting = {one for conditions in self._conditions.values() for one in conditions}
            for condition in (self.changed, *waiting):
                condition.notify_all()

    def _stamped(self, item: Object) -> Object:
        self._resource_version += 1
        metadata = {**item.get("metadata", {}), "resourceVersion": str(self._resource_version)}
        return {**item, "metadata": metadata}

    def _index(self, collection: Collection, key: Key, previous: Object | None, item: Object | None) -> None:
        before, after = _owners(previous), _owners(item)
        if before == after:
            return
        for uid in before - after:
            self._dependents[uid].discard((collection, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents[uid].add((collection, key))

    def _record(
        self,
        collection: Collection,
        kind: Literal["ADDED", "MODIFIED", "DELETED"],
        item: Object,
        previous: Object | None,
    ) -> None:
        history = self._history[collection]
        change = Change(self._resource_version, kind, item, previous)
        history.changes.append(change)
        if len(history.changes) > 2 * _KEPT_CHANGES:
            # Many at once: the front of a list is removed by moving all that follows.
            history.floor = history.changes[_KEPT_CHANGES - 1].resource_version
            del history.changes[:_KEPT_CHANGES]
        for condition in self._conditions[collection]:
            condition.notify_all()
        for listener in self.listeners:
            listener(collection, change)


def _owners(item: Object | None) -> set[str]:
    references = item["metadata"].get("ownerReferences") if item else None
    return {reference["uid"] for reference in references if reference.get("uid")} if references else set()


class Watch:
    """One watch of a collection: up to which version events were taken, and what its selector selects."""

    def __init__(
        self, store: Store, collection: Collection, resource_version: int, selects: Callable[[Object], bool]
    ) -> None:
        self.resource_version = resource_version
        self._store = store
        self._collection = collection
        self._selects = selects
        self._condition = store.condition(collection)

    def wait(self, deadline: float, ended: Callable[[], bool]) -> None:
        """Wait for a change until ``deadline`` (a moment of time.monotonic) or ``ended``."""
        with self._store.changed:
            self._condition.wait_for(
                lambda: ended() or self._store.last_change(self._collection) > self.resource_version,
                max(0.0, deadline - time.monotonic()),
            )

    def wake(self) -> None:
        """Have ``wait`` ask again whether the watch has ended."""
        with self._store.changed:
            self._condition.notify_all()

    def take_events(self) -> list[tuple[str, Object]]:
        """The events since the last call; afterwards ``resource_version`` is that of the whole store.

        An object that a change moves in or out of the selection is ADDED or DELETED, as the API has it.
        Raises Expired where some of the events are forgotten.
        """
        with self._store.changed:
            floor = self._store.floor(self._collection)
            if self.resource_version < floor:
                raise Expired(self.resource_version, floor)
            changes = self._store.changes_after(self._collection, self.resource_version)
            # Nothing is left in the collection up to this version of the whole store, which a bookmark tells.
            self.resource_version = max(self.resource_version, self._store.resource_version)
        return [event for event in map(self._selected, changes) if event is not None]

    def _selected(self, change: Change) -> tuple[str, Object] | None:
        was = change.previous is not None and self._selects(change.previous)
        now = change.type != "DELETED" and self._selects(change.item)
        if was and now:
            return "MODIFIED", change.item
        if now:
            return "ADDED", change.item
        if was and change.previous is not None:
            # The object as the selector saw it last, with the version of the change that took it out.
            version = str(change.resource_version)
            metadata = {**change.previous["metadata"], "resourceVersion": version}
            return "DELETED", {**change.previous, "metadata": metadata}
        return None
