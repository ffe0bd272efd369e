"""Decides whether a type can stand for another, and what type parameters are (cel-go, checker/types.go)."""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes_rules.cel.types import DYN, Type

ERROR = Type("error")
"""The type of a part that is wrong; it goes with every other, lest one error make more."""
_PRIMITIVE = frozenset(("bool", "int", "uint", "double", "string", "bytes", "null_type", "type"))
_GENERIC_OR_TYPE = frozenset(("list", "map"))


class Bindings(dict[Type, Type]):
    """What type parameters stand for. A journal of the changes lets a failed attempt be undone."""

    __slots__ = ("_journal",)

    def __init__(self) -> None:
        super().__init__()
        self._journal: list[tuple[Type, Type | None]] = []

    def bind(self, parameter: Type, kind: Type) -> None:
        """Lets a parameter stand for a type."""
        self._journal.append((parameter, self.get(parameter)))
        self[parameter] = kind

    def are_assignable(self, left: list[Type], right: list[Type]) -> bool:
        """Whether each left type is assignable to the right one; only if so, parameters are bound by it."""
        self._journal.clear()
        if _all_assignable(self, left, right):
            return True
        for parameter, before in reversed(self._journal):
            if before is None:
                del self[parameter]
            else:
                self[parameter] = before
        return False


def is_parameter(kind: Type) -> bool:
    """Whether it is a type parameter."""
    return kind.name[0] == "<"


def is_dyn_or_error(kind: Type) -> bool:
    """Whether it goes with every other type."""
    return kind.name in ("dyn", "error")


def _is_nullable(kind: Type) -> bool:
    """Whether null can stand for it: for times, for messages and for opaque types."""
    return (kind.name not in _PRIMITIVE and kind.name not in _GENERIC_OR_TYPE) or kind.name == "null_type"


def _all_assignable(bindings: Bindings, left: list[Type], right: list[Type]) -> bool:
    return len(left) == len(right) and all(
        _assignable(bindings, one, other) for one, other in zip(left, right, strict=True)
    )


def _assignable(bindings: Bindings, left: Type, right: Type) -> bool:
    if is_parameter(right):
        valid, bound = _binds(bindings, left, right)
        if valid or bound:
            return valid
    if is_parameter(left):
        return _binds(bindings, right, left)[0]
    if is_dyn_or_error(left) or is_dyn_or_error(right):
        return True
    if left.name == "null_type":
        return _is_nullable(right)
    if right.name == "null_type":
        return _is_nullable(left)
    if left.name != right.name:
        return False
    return left.name == "type" or _all_assignable(bindings, list(left.parameters), list(right.parameters))


def _binds(bindings: Bindings, kind: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether a type can be what a parameter stands for, and whether the parameter stood for one before."""
    if kind == parameter:
        return True, True
    bound = bindings.get(parameter)
    if bound is None:
        if not _absent_from(bindings, parameter, kind):
            return False, False
        bindings.bind(parameter, kind)
        return True, False
    if kind == bound:
        return True, True
    if not _assignable(bindings, kind, bound):
        return False, True
    general = most_general(kind, bound)
    if _absent_from(bindings, parameter, general):
        bindings.bind(parameter, general)
    return True, True


def _absent_from(bindings: Bindings, parameter: Type, kind: Type) -> bool:
    if parameter == kind:
        return False
    if is_parameter(kind):
        bound = bindings.get(kind)
        return bound is None or _absent_from(bindings, parameter, bound)
    return all(_absent_from(bindings, parameter, part) for part in kind.parameters)


def most_general(left: Type, right: Type) -> Type:
    """The more general of two types of which one is assignable to the other."""
    return left if _is_as_general(left, right) else right


def _is_as_general(left: Type, right: Type) -> bool:
    if left.name == "dyn" or is_parameter(left):
        return True
    if right.name == "dyn" or is_parameter(right) or left.name != right.name:
        return False
    return left.name == "type" or (
        len(left.parameters) == len(right.parameters)
        and all(map(_is_as_general, left.parameters, right.parameters))
    )


def substitute(bindings: Mapping[Type, Type], kind: Type, *, free_to_dyn: bool = False) -> Type:
    """The type with its parameters replaced by what they stand for; free ones by dyn if so wanted."""
    bound = bindings.get(kind)
    if bound is not None:
        return substitute(bindings, bound, free_to_dyn=free_to_dyn)
    if is_parameter(kind):
        return DYN if free_to_dyn else kind
    if not kind.parameters:
        return kind
    parts = tuple(substitute(bindings, part, free_to_dyn=free_to_dyn) for part in kind.parameters)
    return Type(kind.name, parts)
