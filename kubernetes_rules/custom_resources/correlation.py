"""Finds the old value that a value of an update replaces.

Source: k8s.io/apiserver/pkg/cel/common, CorrelatedObject.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.custom_resources.schema import Schema


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal as in Go, where 1, 1.0 and true have different types."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@dataclass(slots=True)
class Correlated:
    """A value of an update with the old value at the same place.

    Entries of lists are at the same place if the list is a map and their keys are equal; entries of other
    lists have no old value.
    """

    schema: Schema
    value: Any
    old: Any
    _unchanged: bool | None = field(default=None, init=False)
    _children: dict[str | int, Correlated | None] = field(default_factory=dict, init=False)

    def value_of(self, key: str) -> Correlated | None:
        """The value at a key of a map; None if the old map or the schema does not know the key."""
        if key not in self._children:
            schema = self.schema.child(key)
            known = schema is not None and all(
                isinstance(holder, dict) and key in holder for holder in (self.value, self.old)
            )
            self._children[key] = (
                Correlated(schema, self.value[key], self.old[key]) if known and schema else None
            )
        return self._children[key]

    def entry(self, index: int) -> Correlated | None:
        """The entry of a list at an index; None if it has no old value."""
        if index not in self._children:
            old = self._old_entry(index)
            items = self.schema.items
            found = None if old is None or items is None else Correlated(items, self.value[index], old)
            self._children[index] = found
        return self._children[index]

    def _old_entry(self, index: int) -> Any:
        keys = self.schema.x_list_map_keys
        if self.schema.x_list_type != "map" or self.schema.type != "array" or not keys:
            return None
        if not isinstance(self.old, list) or not isinstance(self.value, list):
            return None
        wanted = _list_key(self.value[index], keys)
        if wanted is None:
            return None
        return next((entry for entry in self.old if _list_key(entry, keys) == wanted), None)

    def is_unchanged(self) -> bool:
        """Whether the value equals the old one (CachedDeepEqual)."""
        if self._unchanged is None:
            self._unchanged = self._compared()
        return self._unchanged

    def _compared(self) -> bool:
        value, old = self.value, self.old
        if isinstance(value, list) and isinstance(old, list):
            if len(value) != len(old):
                return False
            entries = [self.entry(index) for index in range(len(value))]
            if self.schema.x_list_type != "map":
                return same(value, old)
            return all(entry is not None and entry.is_unchanged() for entry in entries)
        if isinstance(value, dict) and isinstance(old, dict):
            # A key that the schema does not know has no old value, so that its map counts as changed.
            return len(value) == len(old) and all(
                child is not None and child.is_unchanged() for child in map(self.value_of, value)
            )
        return same(value, old)


def _list_key(entry: Any, keys: tuple[str, ...]) -> tuple[tuple[type, Any], ...] | None:
    """What identifies an entry of a list that is a map; None if a key is missing or no scalar."""
    if not isinstance(entry, dict):
        return None
    found = [entry.get(key) for key in keys]
    if not all(isinstance(value, bool | int | float | str) for value in found):
        return None
    return tuple((type(value), value) for value in found)
