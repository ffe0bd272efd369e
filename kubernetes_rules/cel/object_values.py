"""Values that come from objects of the API (apiserver/pkg/cel/common: unstructured and typed values).

Such a list or map compared with a value of another kind is an error, where lists and maps of an expression
are just unequal to it. Lists with ``x-kubernetes-list-type`` are added and compared as sets and maps.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from kubernetes_rules.cel.checker import RESERVED_WORDS
from kubernetes_rules.cel.types import CelError, Type
from kubernetes_rules.cel.values import OpaqueValue, equal, traversal_units

_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {escape: text for text, escape in _ESCAPES.items()}
_ESCAPED_PART = re.compile(r"__|[-./]")
_UNESCAPED_PART = re.compile(r"__[^_]+__")
_NAME = re.compile(r"[A-Za-z_./\-][A-Za-z0-9_./\-]*", re.ASCII)


class ObjectList(tuple[Any, ...]):
    """A list whose order counts."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        """``==``. Raises CelError for a value that is no list."""
        return self._same_length(other) and all(map(equal, self, other))

    def plus(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        """``+``."""
        return (*self, *other)

    def _same_length(self, other: Any) -> bool:
        if not isinstance(other, tuple):
            raise CelError("no such overload")
        return len(self) == len(other)


class SetList(ObjectList):
    """A list with the list type ``set``."""

    __slots__ = ()

    def equals(self, other: Any) -> bool:
        """Whether both have the same elements. Raises CelError for elements that are not scalar."""
        return self._same_length(other) and _set_of(self) == _set_of(other)

    def plus(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        """The elements of both, each once. Raises CelError for elements that are not scalar."""
        found = dict(zip(map(_scalar, self), self, strict=True))
        added = [element for element in other if _scalar(element) not in found]
        return SetList((*self, *dict(zip(map(_scalar, added), added, strict=True)).values()))


class MapList(ObjectList):
    """A list with the list type ``map``. ``keys`` are the names of the fields that tell elements apart."""

    keys: tuple[str, ...]

    def equals(self, other: Any) -> bool:
        """Whether both have equal elements for the same keys, in any order."""
        if not self._same_length(other):
            return False
        known = {self._key(element): element for element in self}
        seen = set()
        for element in other:
            key = self._key(element)
            if key not in known or not equal(known[key], element):
                return False
            seen.add(key)
        return len(seen) == len(known)

    def plus(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        """The elements of both; those of the other list replace elements with the same key."""
        merged = {self._key(element): element for element in self}
        merged |= {self._key(element): element for element in other}
        return map_list(merged.values(), self.keys)

    def _key(self, element: Any) -> tuple[Any, ...]:
        if not isinstance(element, Mapping):
            raise CelError("unexpected data format for element of array with x-kubernetes-list-type=map")
        entries = element.raw if isinstance(element, ObjectMap) else element
        return tuple(_scalar(entries.get(key)) for key in self.keys)


def map_list(elements: Iterable[Any], keys: tuple[str, ...]) -> MapList:
    """A list with the list type ``map``."""
    made = MapList(elements)
    made.keys = keys
    return made


def _scalar(element: Any) -> Hashable:
    if isinstance(element, tuple | Mapping):
        raise CelError("listSet operations are only supported on lists of scalar values")
    return type(element), element


def _set_of(elements: Iterable[Any]) -> set[Hashable]:
    return set(map(_scalar, elements))


class ObjectMap(dict[str, Any]):
    """An object or a map. ``raw`` is its JSON, which may have fields that expressions cannot see.

    ``escapes``: it is an object with fields, so that its keys are written escaped. ``nulls`` are its fields
    that are null, which is as good as absent.
    """

    __slots__ = ("escapes", "nulls", "raw")

    def __init__(
        self,
        seen: Mapping[str, Any],
        raw: Mapping[str, Any],
        *,
        escapes: bool = False,
        nulls: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(seen)
        self.raw = raw
        self.escapes = escapes
        self.nulls = nulls

    def __len__(self) -> int:
        return len(self.raw)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, which may be escaped."""
        if self.escapes and isinstance(key, str) and "__" in key:
            key = unescaped(key)
        return super().get(key, default)

    def unseen_units(self) -> int:
        """The cost of going through the fields that expressions cannot see, two units for most."""
        return sum(
            traversal_units(escaped(key) or key) + 1 if key in self.nulls else 2
            for key in self.raw
            if key not in self
        )

    def items(self) -> Any:
        """The keys as expressions write them, with their values."""
        if not self.escapes:
            return super().items()
        return {escaped(key) or key: value for key, value in super().items()}.items()

    def equals(self, other: Any) -> bool:
        """``==``. Raises CelError for a value that is no map."""
        if not isinstance(other, Mapping):
            raise CelError("no such overload")
        if len(self) != len(other):
            return False
        missing = object()
        for key, value in self.raw.items():
            if key in self or key in self.nulls:
                mine, found = self.get(key, missing), other.get(key, missing)
                if (mine is missing) is not (found is missing) or not (mine is missing or equal(mine, found)):
                    return False
            # A field that expressions cannot see is compared only if both have it.
            elif isinstance(other, ObjectMap) and key not in other and other.raw.get(key, value) != value:
                return False
        return True


class UnknownValue(OpaqueValue):
    """A value without a type, which can only be compared."""

    __slots__ = ("raw",)
    type = Type("unknown")

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def equals(self, other: object) -> bool:
        """``==``."""
        return isinstance(other, UnknownValue) and self.raw == other.raw


def value_of(raw: Any) -> Any:
    """The value of JSON without a schema, as policies see objects."""
    if isinstance(raw, dict):
        return ObjectMap({key: value_of(value) for key, value in raw.items()}, raw)
    return ObjectList(map(value_of, raw)) if isinstance(raw, list) else raw


def escaped(name: str) -> str | None:
    """The name of a property in expressions, None if it cannot be written there (escaping.go, Escape)."""
    if name in RESERVED_WORDS:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return _ESCAPED_PART.sub(lambda found: _ESCAPES[found[0]], name)


def unescaped(name: str) -> str | None:
    """The property that a name in an expression stands for, None for a wrong escape."""
    if "__" not in name:
        return name
    if name[2:-2] in RESERVED_WORDS and name == f"__{name[2:-2]}__":
        return name[2:-2]
    parts = _UNESCAPED_PART.findall(name)
    if not all(part in _UNESCAPES for part in parts):
        return None
    return _UNESCAPED_PART.sub(lambda found: _UNESCAPES[found[0]], name)
