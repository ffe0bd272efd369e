"""Functions on optional values (cel-go, cel/library.go: OptionalTypes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes_rules.cel import types
from kubernetes_rules.cel.operators import MISSING, Gathered, find, never_called
from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import CelError, function, method
from kubernetes_rules.cel.values import Optional

_V = types.parameter("V")
_K = types.parameter("K")
_OPTIONAL = types.optional_of(_V)
_LIST = types.list_of(_V)
_MAP = types.map_of(_K, _V)
_YEAR_ONE = -62_135_596_800 * 1_000_000_000

NONE = Optional(present=False)


def some(value: Any) -> Optional:
    """An optional with a value."""
    return Optional(present=True, value=value)


def _is_zero(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str | bytes | tuple | Mapping):
        return len(value) == 0
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    # Go's zero time is the beginning of the year 1, not of 1970.
    if isinstance(value, Timestamp):
        return value.nanoseconds == _YEAR_ONE
    return isinstance(value, int | float) and value == 0


def _value_of(value: Any) -> Any:
    """The value of an optional. Raises CelError if it has none."""
    if not value.present:
        raise CelError("optional.none() dereference")
    return value.value


def _unwrap(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    if not all(isinstance(element, Optional) for element in elements):
        raise CelError("a value is not optional")
    return tuple(element.value for element in elements if element.present)


def insert(values: Any, *entry: Any) -> Any:
    """A map with one more key, or those of another map. Raises CelError if it has such a key already."""
    entries = ((entry[0], entry[1]),) if len(entry) == 2 else tuple(entry[0].items())
    made = values if isinstance(values, GatheredMap) else dict(values)
    for key, value in entries:
        if find(made, key) is not MISSING:
            raise CelError(f"insert failed: key {key} already exists")
        try:
            made[key] = value
        except TypeError as error:
            raise CelError("unsupported key type") from error
    return made


class GatheredMap(dict[Any, Any]):
    """The map that a macro builds; entries are added in place."""


def finished(value: Any) -> Any:
    """The result of a macro as a value that no longer changes."""
    if type(value) is Gathered:
        return tuple(value)
    return dict(value) if type(value) is GatheredMap else value


OVERLOADS = (
    function("optional.of", (_V,), _OPTIONAL, some),
    function(
        "optional.ofNonZeroValue", (_V,), _OPTIONAL, lambda value: NONE if _is_zero(value) else some(value)
    ),
    function("optional.none", (), _OPTIONAL, lambda: NONE),
    method("value", (_OPTIONAL,), _V, _value_of),
    method("hasValue", (_OPTIONAL,), types.BOOL, lambda value: value.present),
    method("or", (_OPTIONAL, _OPTIONAL), _OPTIONAL, never_called),
    method("orValue", (_OPTIONAL, _V), _V, never_called),
    function("_?._", (types.DYN, types.STRING), _OPTIONAL, never_called),
    function("_[?_]", (_LIST, types.INT), _OPTIONAL, never_called),
    function("_[?_]", (types.optional_of(_LIST), types.INT), _OPTIONAL, never_called),
    function("_[?_]", (_MAP, _K), _OPTIONAL, never_called),
    function("_[?_]", (types.optional_of(_MAP), _K), _OPTIONAL, never_called),
    function("_[_]", (types.optional_of(_LIST), types.INT), _OPTIONAL, never_called),
    function("_[_]", (types.optional_of(_MAP), _K), _OPTIONAL, never_called),
    method("last", (_LIST,), _OPTIONAL, lambda values: some(values[-1]) if values else NONE),
    method("first", (_LIST,), _OPTIONAL, lambda values: some(values[0]) if values else NONE),
    function("optional.unwrap", (types.list_of(_OPTIONAL),), _LIST, _unwrap),
    method("unwrapOpt", (types.list_of(_OPTIONAL),), _LIST, _unwrap),
    function("cel.@mapInsert", (_MAP, _K, _V), _MAP, insert),
    function("cel.@mapInsert", (_MAP, _MAP), _MAP, insert),
)
