"""Keeps the objects with their resourceVersions, and the history from which watches are served."""

from __future__ import annotations

import json
import sys
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

_KEPT_BYTES = 64 * 1024 * 1024
"""How much memory the history may take, by estimate."""
_CHANGE_BYTES = 200
_ENTRY_BYTES = 120
"""What an entry of a map takes in memory beyond its JSON: the average over pods, leases and slices."""
_FORGOTTEN_PART = 8
_INTERNED = frozenset({("resource.k8s.io", "resourceslices")})
"""The collections whose objects are many, large and alike: their equal parts are stored once."""

_version_of = attrgetter("resource_version")

_MOST_PARTS = 200_000
_MOST_ENTRIES = 8
"""Larger maps and lists are hardly ever equal to another one, so only their entries are interned."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object after it (before it, for DELETED) and the object before it.

    ``held_bytes`` is about what the memory of the earlier object takes, which the history alone refers to.
    """

    resource_version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    item: Object
    previous: Object | None
    held_bytes: int


@dataclass(slots=True)
class _History:
    """The last changes of one collection: none after the version ``floor`` is missing."""

    changes: list[Change] = field(default_factory=list)
    floor: int = 0
    held_bytes: int = 0


class Expired(Exception):
    """Changes that a watch has not taken yet were forgotten; ``floor`` is the version of the last of them."""

    def __init__(self, asked: int, floor: int) -> None:
        super().__init__(f"too old resource version: {asked} ({floor})")


class Store:
    """All objects and their last changes. Thread-safe.

    Objects are never changed once they are stored: a writer puts another one in their place.
    ``changed`` is held during each access. A change of an object does not notify it, but the conditions of
    that object's collection. The history takes up to 64 MiB: beyond that the oldest changes of the collection
    with the largest history are forgotten. Each of ``listeners`` is called with every change while the store
    is held, and may write on.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self.listeners: list[Callable[[Collection, Change], None]] = []
        self._objects: dict[Collection, dict[Key, Object]] = {}
        self._sorted: dict[Collection, list[Key]] = {}
        self._history: dict[Collection, _History] = defaultdict(_History)
        self._history_bytes = 0
        self._conditions: dict[Collection, WeakSet[threading.Condition]] = defaultdict(WeakSet)
        self._dependents: dict[str, set[tuple[Collection, Key]]] = defaultdict(set)
        self._interner = Interner()
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
            stored = self._stamped(self._interner.interned(item) if collection in _INTERNED else item)
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
        held = _CHANGE_BYTES + (_memory_bytes(previous) if previous else 0)
        history = self._history[collection]
        change = Change(self._resource_version, kind, item, previous, held)
        history.changes.append(change)
        history.held_bytes += held
        self._history_bytes += held
        while self._history_bytes > _KEPT_BYTES:
            # Of the largest history, so that many writes of one collection do not end the watches of others.
            self._forget(max(self._history.values(), key=attrgetter("held_bytes")))
        for condition in self._conditions[collection]:
            condition.notify_all()
        for listener in self.listeners:
            listener(collection, change)

    def _forget(self, history: _History) -> None:
        """Forget the oldest changes of a history that is not empty."""
        # Several at once: the front of a list is removed by moving all that follows.
        count = -(-len(history.changes) // _FORGOTTEN_PART)
        forgotten = sum(change.held_bytes for change in history.changes[:count])
        history.floor = history.changes[count - 1].resource_version
        history.held_bytes -= forgotten
        self._history_bytes -= forgotten
        del history.changes[:count]


def _memory_bytes(item: Object) -> int:
    """About how much memory an object takes."""
    text = json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    return len(text) + _ENTRY_BYTES * text.count('":')


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


class Interner:
    """Replaces equal parts of objects by one, which must not be changed. Not thread-safe."""

    def __init__(self) -> None:
        self._parts: dict[Any, Any] = {}

    def interned(self, value: Any) -> Any:
        """An equal value, made of parts that other objects may have too."""
        return self._intern(value)[0]

    def _intern(self, value: Any) -> tuple[Any, bool]:
        """The value, and whether it is in the table: those in it are equal only if they are identical."""
        if isinstance(value, str):
            return self._kept(value, value) if len(value) < 128 else (value, False)
        if isinstance(value, dict):
            entries = [(sys.intern(key), *self._intern(item)) for key, item in value.items()]
            copied: Any = {key: item for key, item, _ in entries}
            if len(entries) > _MOST_ENTRIES or not all(held for _, _, held in entries):
                return copied, False
            return self._kept(("map", *((key, id(item)) for key, item, _ in entries)), copied)
        if isinstance(value, list):
            items = [self._intern(item) for item in value]
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
