"""Finds the type of each part of an expression before it runs (cel-go, checker/checker.go).

Every name is resolved here, and for every call the signatures that fit are noted. Whether a type can be used
for another, and what type parameters stand for, is decided as in cel-go, checker/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes_rules.cel.libraries import FUNCTIONS
from kubernetes_rules.cel.library_quantity import QUANTITY
from kubernetes_rules.cel.syntax import (
    Call,
    Fold,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Node,
    Select,
    Variable,
)
from kubernetes_rules.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Overload,
    Type,
    Uint,
    list_of,
    map_of,
    optional_of,
    type_of,
)

DEVICE = Type("kubernetes.DRADevice")
_DEVICE_FIELDS = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_MOST_NODES = 100_000
"""Nested optMap() doubles its operand with each level: without a limit, checking a short text never ends."""
_TYPES = (BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT)
_TYPE_NAMES: dict[str, Type] = {
    **{kind.name: kind for kind in _TYPES},
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": Type("type"),
    "optional_type": optional_of(DYN),
}
_LITERALS = {bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL}

ERROR = Type("error")
"""The type of a part that is wrong; it goes with every other, lest one error make more."""
_PRIMITIVE = frozenset(("bool", "int", "uint", "double", "string", "bytes", "null_type", "type"))
_GENERIC_OR_TYPE = frozenset(("list", "map"))


class TypeInvalid(ValueError):
    """An expression cannot be right, whatever the values are."""


class Checker:
    """Goes through a tree once; see ``check``."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self._outermost = dict(variables)
        self._scopes: list[dict[str, Variable]] = [self._outermost]
        self.bindings = Bindings()
        self.nodes: list[Node] = []
        self._free = 0

    def final(self, kind: Type) -> Type:
        """The type, with nothing left open."""
        return _substitute(self.bindings, kind, free_to_dyn=True)

    def check(self, node: Node) -> Type:
        """The type of a part, which is also written into it. Raises TypeInvalid where it is wrong."""
        match node:
            case Literal():
                kind = _LITERALS[type(node.value)]
            case Ident():
                kind = self._ident(node)
            case Select():
                kind = self._select(node)
            case Call():
                kind = self._call(node)
            case ListLiteral():
                kind = self._list(node)
            case MapLiteral():
                kind = self._map(node)
            case Fold():
                kind = self._fold(node)
            case MessageLiteral():
                raise TypeInvalid(f"{node.name} is no type that can be made")
            case _:
                raise TypeInvalid("an unknown kind of expression")
        node.type = kind
        self.nodes.append(node)
        if len(self.nodes) > _MOST_NODES:
            raise TypeInvalid(f"it has more than {_MOST_NODES} parts, macros expanded")
        return kind

    def _free_parameter(self) -> Type:
        self._free += 1
        return Type(f"<{self._free}>")

    def _bound(self, kind: Type) -> Type:
        return _substitute(self.bindings, kind)

    def _ident(self, node: Ident) -> Type:
        variable = self._found(node.name)
        if variable is not None:
            node.meaning = variable
            return variable.type
        kind = _TYPE_NAMES.get(node.name.removeprefix("."))
        if kind is None:
            raise TypeInvalid(f"undeclared reference to {node.name!r} at character {node.start}")
        node.meaning = Type(kind.name)
        return type_of(kind)

    def _found(self, name: str) -> Variable | None:
        if name.startswith("."):
            return self._outermost.get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _select(self, node: Select) -> Type:
        name = None if node.test_only else qualified_name(node)
        if name in _TYPE_NAMES and name is not None:
            node.constant = Type(name)
            return type_of(_TYPE_NAMES[name])
        kind = self._field(node.operand, node.field, optional=False)
        return BOOL if node.test_only else self._bound(kind)

    def _field(self, operand: Node, field: str, *, optional: bool) -> Type:
        kind = self._bound(self.check(operand))
        if kind.name == "optional_type":
            kind, optional = kind.parameters[0], True
        if kind.name == "map":
            result = kind.parameters[1]
        elif kind == DEVICE:
            if field not in _DEVICE_FIELDS:
                raise TypeInvalid(f"undefined field {field!r} at character {operand.end}")
            result = _DEVICE_FIELDS[field]
        elif _is_parameter(kind):
            self.bindings.are_assignable([DYN], [kind])
            result = DYN
        elif _is_dyn_or_error(kind):
            result = DYN
        else:
            raise TypeInvalid(f"type {kind} at character {operand.start} has no fields")
        return optional_of(result) if optional else result

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            operand, field = node.arguments
            name = field.value if isinstance(field, Literal) else ""
            return self._bound(self._field(operand, name, optional=True))
        for argument in node.arguments:
            self.check(argument)
        if node.target is not None:
            prefix = qualified_name(node.target)
            name = f"{prefix}.{node.function}".removeprefix(".")
            if prefix is not None and name in FUNCTIONS:
                node.function, node.target = name, None
            else:
                self.check(node.target)
        overloads = FUNCTIONS.get(node.function.removeprefix("."))
        if overloads is None:
            raise TypeInvalid(f"undeclared function {node.function!r} at character {node.start}")
        node.function = node.function.removeprefix(".")
        return self._resolve(node, overloads)

    def _resolve(self, node: Call, overloads: tuple[Overload, ...]) -> Type:
        given = [argument.type for argument in node.all_arguments()]
        if node.function in ("_&&_", "_||_"):
            if not self.bindings.are_assignable(given, [BOOL] * len(given)):
                raise TypeInvalid(f"an operand of {node.function[1:3]} at character {node.start} is no bool")
            node.overloads = overloads
            return BOOL
        result: Type | None = None
        fitting: list[Overload] = []
        for overload in overloads:
            if overload.receiver is (node.target is None):
                continue
            parameters, produced = self._instance(overload)
            if not self.bindings.are_assignable(given, parameters):
                continue
            fitting.append(overload)
            produced = self._bound(produced)
            if result is None:
                result = produced
            elif result != DYN and produced != result:
                result = DYN
        if result is None:
            names = ", ".join(str(self.final(kind)) for kind in given)
            raise TypeInvalid(f"no {node.function!r} at character {node.start} takes ({names})")
        node.overloads = tuple(fitting)
        return result

    def _instance(self, overload: Overload) -> tuple[list[Type], Type]:
        """The parameters and the result, with type parameters of this call's own."""
        fresh: dict[Type, Type] = {}
        for kind in (*overload.parameters, overload.result):
            self._add_fresh(kind, fresh)
        if not fresh:
            return list(overload.parameters), overload.result
        return [_substitute(fresh, kind) for kind in overload.parameters], _substitute(fresh, overload.result)

    def _add_fresh(self, kind: Type, fresh: dict[Type, Type]) -> None:
        if _is_parameter(kind) and kind not in fresh:
            fresh[kind] = self._free_parameter()
        for part in kind.parameters:
            self._add_fresh(part, fresh)

    def _joined(self, before: Type | None, kind: Type) -> Type:
        if before is None:
            return kind
        return _most_general(before, kind) if self.bindings.are_assignable([before], [kind]) else DYN

    def _unwrapped(self, node: Node, kind: Type) -> Type:
        if kind.name == "optional_type":
            return kind.parameters[0]
        if kind.name != "dyn":
            raise TypeInvalid(f"the value at character {node.start} is not optional but {kind}")
        return kind

    def _list(self, node: ListLiteral) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            kind = self.check(element)
            if index in node.optional:
                kind = self._unwrapped(element, kind)
            joined = self._joined(joined, kind)
        return list_of(joined or self._free_parameter())

    def _map(self, node: MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._joined(keys, self.check(key))
            kind = self.check(value)
            values = self._joined(values, self._unwrapped(value, kind) if optional else kind)
        return map_of(keys or self._free_parameter(), values or self._free_parameter())

    def _fold(self, node: Fold) -> Type:
        items = self.check(node.items)
        gathered = self.check(node.initial)
        first, second = self._item_types(node, self._bound(items))
        accumulator = Variable(node.accumulator, gathered)
        self._scopes.append({node.accumulator: accumulator})
        variables = {node.variable: Variable(node.variable, first)}
        if node.second:
            variables[node.second] = Variable(node.second, second)
        self._scopes.append(variables)
        for part, wanted in ((node.condition, BOOL), (node.step, gathered)):
            if not self.bindings.are_assignable([wanted], [self.check(part)]):
                raise TypeInvalid(f"the macro at character {node.start} needs {wanted}, not {part.type}")
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        node.gathered, node.item_variables = accumulator, tuple(variables.values())
        return self._bound(result)

    def _item_types(self, node: Fold, kind: Type) -> tuple[Type, Type]:
        if kind.name == "list":
            return (INT, kind.parameters[0]) if node.second else (kind.parameters[0], DYN)
        if kind.name == "map":
            return kind.parameters[0], kind.parameters[1]
        if _is_dyn_or_error(kind) or _is_parameter(kind):
            self.bindings.are_assignable([DYN], [kind])
            return DYN, DYN
        raise TypeInvalid(f"the macro at character {node.start} cannot go through {kind}")


def qualified_name(node: Node) -> str | None:
    """``a.b.c`` for that part of an expression, None for any other."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


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


def _is_parameter(kind: Type) -> bool:
    """Whether it is a type parameter."""
    return kind.name[0] == "<"


def _is_dyn_or_error(kind: Type) -> bool:
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
    if _is_parameter(right):
        valid, bound = _binds(bindings, left, right)
        if valid or bound:
            return valid
    if _is_parameter(left):
        return _binds(bindings, right, left)[0]
    if _is_dyn_or_error(left) or _is_dyn_or_error(right):
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
    general = _most_general(kind, bound)
    if _absent_from(bindings, parameter, general):
        bindings.bind(parameter, general)
    return True, True


def _absent_from(bindings: Bindings, parameter: Type, kind: Type) -> bool:
    if parameter == kind:
        return False
    if _is_parameter(kind):
        bound = bindings.get(kind)
        return bound is None or _absent_from(bindings, parameter, bound)
    return all(_absent_from(bindings, parameter, part) for part in kind.parameters)


def _most_general(left: Type, right: Type) -> Type:
    """The more general of two types of which one is assignable to the other."""
    return left if _is_as_general(left, right) else right


def _is_as_general(left: Type, right: Type) -> bool:
    if left.name == "dyn" or _is_parameter(left):
        return True
    if right.name == "dyn" or _is_parameter(right) or left.name != right.name:
        return False
    return left.name == "type" or (
        len(left.parameters) == len(right.parameters)
        and all(map(_is_as_general, left.parameters, right.parameters))
    )


def _substitute(bindings: Mapping[Type, Type], kind: Type, *, free_to_dyn: bool = False) -> Type:
    """The type with its parameters replaced by what they stand for; free ones by dyn if so wanted."""
    bound = bindings.get(kind)
    if bound is not None:
        return _substitute(bindings, bound, free_to_dyn=free_to_dyn)
    if _is_parameter(kind):
        return DYN if free_to_dyn else kind
    if not kind.parameters:
        return kind
    parts = tuple(_substitute(bindings, part, free_to_dyn=free_to_dyn) for part in kind.parameters)
    return Type(kind.name, parts)
