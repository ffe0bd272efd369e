"""The types of CEL (cel-spec, langdef.md) and the signatures of functions, for checking before running.

Values are plain: int, float, str, bytes, bool, None, tuple for lists, Mapping for maps. ``Uint`` and the
opaque types of the Kubernetes libraries have classes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class CelError(Exception):
    """An expression has no value: what CEL calls an error value. ``&&`` and ``||`` can absorb it."""


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Type:
    """A type: its name, and what it is made of (``list``: element; ``map``: key and value)."""

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


DYN = Type("dyn")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null_type")
TIMESTAMP = Type("google.protobuf.Timestamp")
DURATION = Type("google.protobuf.Duration")


def list_of(element: Type) -> Type:
    """A list of one element type."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """A map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """A value that may be absent."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """The type of a type, as ``type(1)`` has it."""
    return Type("type", (value,))


def parameter(name: str) -> Type:
    """A type parameter of a signature, such as the element of any list."""
    return Type(f"<{name}>")


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function, and what it does.

    ``receiver`` functions are called as ``a.f(b)``, ``a`` being the first of ``parameters``; the others as
    ``f(a, b)``. ``call`` gets the values and raises CelError where CEL gives an error. ``cost`` gives the
    units that a call costs from its arguments and its result, by the rules of the Kubernetes libraries
    (k8s.io/apiserver/pkg/cel/library/cost.go); None is one unit.
    """

    name: str
    receiver: bool
    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    cost: Callable[[tuple[Any, ...], Any], int] | None = None
