"""Equality, order and size of values, and the cost of traversing them.

The rules are those of cel-go's common/types and of k8s.io/apiserver/pkg/cel/library/cost.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kubernetes_rules.cel.times import Duration, Timestamp
from kubernetes_rules.cel.types import CelError, Cost, Type, Uint

CHARACTERS_PER_UNIT = 0.1
"""Units of cost for each character or byte of a string that is traversed."""
CALL_UNITS = 1
LIST_UNITS = 10
"""Units of cost for the creation of a list."""

_LARGEST_STRING = 2**26
"""The longest string that a function may return, so that a selector cannot fill memory."""
_LARGEST_COMPARISONS = 1_000_000
"""The most comparisons that a function may make; more would cost more than an evaluation may."""


class OpaqueValue:
    """A value of a type that Kubernetes adds to CEL. Comparing two costs one unit, however large they are."""

    __slots__ = ()
    type: ClassVar[Type]

    def equals(self, other: object) -> bool:
        """Whether the other value is equal. Raises CelError if it is of another type."""
        if type(other) is not type(self):
            raise CelError("no such overload")
        return self == other


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    present: bool
    value: Any = None


def optional(value: Any) -> Optional:
    """An optional with this value, or without one for None."""
    return Optional(present=value is not None, value=value)


def equal(left: Any, right: Any) -> bool:
    """``left == right``: numbers of any type are compared by value, values of unlike types are unequal.

    Raises CelError if an opaque value is compared with another type. Within lists and maps such an error
    counts as equal, as in cel-go.
    """
    if left is None or right is None:
        return left is right
    if isinstance(left, OpaqueValue):
        return left.equals(right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float):
        return isinstance(right, int | float) and _compare_numbers(left, right) == 0
    if isinstance(left, tuple | Mapping):
        return _equal_containers(left, right)
    if isinstance(left, Optional):
        if not isinstance(right, Optional) or left.present is not right.present:
            return False
        return not left.present or equal(left.value, right.value)
    return type(left) is type(right) and bool(left == right)


def _equal_containers(left: Any, right: Any) -> bool:
    if isinstance(left, tuple):
        return (
            isinstance(right, tuple) and len(left) == len(right) and all(map(_equal_or_failed, left, right))
        )
    return isinstance(right, Mapping) and _equal_maps(left, right)


def check_length(characters: int) -> None:
    """Raises CelError for a string that would fill memory."""
    if characters > _LARGEST_STRING:
        raise CelError(f"a string of {characters} characters is too long")


def check_comparisons(times: int) -> None:
    """Raises CelError for more comparisons than the limit of costs allows anyway."""
    if times > _LARGEST_COMPARISONS:
        raise CelError(f"{times} comparisons are too many")


def surely_equal(left: Any, right: Any) -> bool:
    """Whether ``==`` is true; an error counts as false, as in searches of a list."""
    try:
        return equal(left, right)
    except CelError:
        return False


def _equal_or_failed(left: Any, right: Any) -> bool:
    try:
        return equal(left, right)
    except CelError:
        return True


def _equal_maps(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    # Python's True equals 1; CEL's does not.
    found = {(isinstance(key, bool), key): value for key, value in right.items()}
    for key, value in left.items():
        place = (isinstance(key, bool), key)
        if place not in found or not _equal_or_failed(value, found[place]):
            return False
    return True


def _compare_numbers(left: float, right: float) -> int | None:
    """-1, 0 or 1 for two numbers of any type; None if one is NaN."""
    # cel-go converts the integer to a double, so that 2^53+1 equals 2^53 then.
    if isinstance(left, float) is not isinstance(right, float):
        left, right = float(left), float(right)
    if left != left or right != right:
        return None
    return (left > right) - (left < right)


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1 for two values of one ordered type. Raises CelError for others, and for NaN."""
    if isinstance(left, int | float) and isinstance(right, int | float):
        if isinstance(left, bool) is not isinstance(right, bool):
            raise CelError("no such overload")
        order = _compare_numbers(left, right)
        if order is None:
            raise CelError("NaN values cannot be ordered")
        return order
    if not is_comparable(left) or type(left) is not type(right):
        raise CelError("no such overload")
    return int(left > right) - int(left < right)


def is_comparable(value: Any) -> bool:
    """Whether the value's type is ordered."""
    return isinstance(value, bool | int | float | str | bytes | Duration | Timestamp)


_PLAIN_TYPES = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (type(None), "null_type"),
    (tuple, "list"),
    (Mapping, "map"),
    (Type, "type"),
    (Timestamp, "google.protobuf.Timestamp"),
    (Duration, "google.protobuf.Duration"),
    (Optional, "optional_type"),
)


def type_name(value: Any) -> str:
    """The name of a value's type at run time."""
    if isinstance(value, OpaqueValue):
        return value.type.name
    for python_type, name in _PLAIN_TYPES:
        if isinstance(value, python_type):
            return name
    raise TypeError(f"{type(value)} is no type of a CEL value")


def add(left: Any, right: Any) -> Any:
    """The sum of two numbers, or durations, of one type. Raises CelError for others, and on overflow."""
    if type_name(left) != type_name(right):
        raise CelError("no such overload")
    if isinstance(left, float | Duration):
        return left + right
    if isinstance(left, int) and not isinstance(left, bool):
        total = int(left) + int(right)
        lowest, highest = (0, 2**64 - 1) if isinstance(left, Uint) else (-(2**63), 2**63 - 1)
        if not lowest <= total <= highest:
            raise CelError("integer overflow")
        return type(left)(total)
    raise CelError("no such overload")


def size(value: Any) -> int:
    """The size from which costs are computed: characters, bytes, elements, octets of an address; else 1."""
    if isinstance(value, str | bytes | tuple | Mapping):
        return len(value)
    octets = getattr(value, "octets", None)
    return 1 if octets is None else int(octets)


def string_units(value: Any, times: float = 1) -> int:
    """The units for traversing a string this many times."""
    return math.ceil(float(size(value)) * times * CHARACTERS_PER_UNIT)


def regex_units(text: Any, pattern_size: int) -> int:
    """The units for matching a string with a regular expression of this size."""
    return math.ceil((1.0 + size(text)) * CHARACTERS_PER_UNIT) * math.ceil(float(pattern_size) * 0.25)


def traversal_units(value: Any) -> int:
    """The units for traversing a value with everything in it."""
    if isinstance(value, str | bytes):
        length = len(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass"))
        return int(float(length) * CHARACTERS_PER_UNIT)
    if isinstance(value, tuple):
        return sum(map(traversal_units, value))
    if isinstance(value, Mapping):
        return sum(traversal_units(key) + traversal_units(item) for key, item in value.items())
    return 1


def traversed_string(times: float = 1) -> Cost:
    """The cost of a function that traverses its first argument, a string, this many times."""
    return lambda arguments, _: string_units(arguments[0], times)


def traversed_value(arguments: tuple[Any, ...], _: Any) -> int:
    """The cost of a function that traverses its first argument once."""
    return traversal_units(arguments[0])
