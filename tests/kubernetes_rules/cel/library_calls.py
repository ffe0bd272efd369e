"""Calls the functions of the CEL libraries by name and values, as an expression would."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubernetes_rules.cel.types import Overload, Type
from kubernetes_rules.cel.values import type_name


def fits(wanted: Type, value: Any) -> bool:
    """Whether a value can be the argument for a parameter of this type."""
    if wanted.name == "dyn" or wanted.name.startswith("<"):
        return True
    if wanted.name != type_name(value):
        return False
    return wanted.name != "list" or not value or fits(wanted.parameters[0], value[0])


def overload_for(overloads: Iterable[Overload], name: str, arguments: tuple[Any, ...]) -> Overload:
    """The first signature of the function that takes these arguments."""
    for overload in overloads:
        alike = overload.name == name and len(overload.parameters) == len(arguments)
        if alike and all(map(fits, overload.parameters, arguments)):
            return overload
    raise LookupError(f"no overload of {name} takes {arguments}")


def call(overloads: Iterable[Overload], name: str, *arguments: Any) -> Any:
    """The result of the function."""
    return overload_for(overloads, name, arguments).call(*arguments)


def cost(overloads: Iterable[Overload], name: str, *arguments: Any) -> int:
    """What the call costs."""
    overload = overload_for(overloads, name, arguments)
    return 1 if overload.cost is None else overload.cost(arguments, overload.call(*arguments))
