"""The types of CEL (cel-spec, langdef.md) and the signatures of functions, for checking before running.

Values are plain: int, float, str, bytes, bool, None, tuple for lists, Mapping for maps. ``Uint`` and the
opaque types of the Kubernetes libraries have classes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class CelError(Exception):
    """An expression has no value; CEL calls this an error value. ``&&`` and ``||`` can absorb it."""


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
    """The type of a type, such as that of ``type(1)``."""
    return Type("type", (value,))


def parameter(name: str) -> Type:
    """A type parameter of a signature, such as the element of any list."""
    return Type(f"<{name}>")


Cost = Callable[[tuple[Any, ...], Any], int]
"""Computes the units that a call costs, from its arguments and its result."""


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function, and what it does.

    ``receiver`` functions are called as ``a.f(b)``, where ``a`` is the first of ``parameters``; the others as
    ``f(a, b)``. ``call`` gets the values and raises CelError for a CEL error. ``cost`` computes the units of
    a call from its arguments and its result, by the rules of k8s.io/apiserver/pkg/cel/library/cost.go; None
    is one unit.
    """

    name: str
    receiver: bool
    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    cost: Cost | None = None


def function(
    name: str, parameters: tuple[Type, ...], result: Type, call: Callable[..., Any], cost: Cost | None = None
) -> Overload:
    """The signature of ``f(a, b)``."""
    return Overload(name, receiver=False, parameters=parameters, result=result, call=call, cost=cost)


def method(
    name: str, parameters: tuple[Type, ...], result: Type, call: Callable[..., Any], cost: Cost | None = None
) -> Overload:
    """The signature of ``a.f(b)``, where ``a`` is the first of the parameters."""
    return Overload(name, receiver=True, parameters=parameters, result=result, call=call, cost=cost)
