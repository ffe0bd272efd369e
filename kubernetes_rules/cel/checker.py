"""Finds the type of each part of an expression before it runs (cel-go, checker/checker.go).

It also resolves every name, and notes the signatures that fit each call. Types are assigned, and type
parameters bound, by the rules of cel-go, checker/types.go. An error does not end the check: the part gets the
type of errors, which fits everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes_rules.cel import syntax, types
from kubernetes_rules.cel.libraries import FUNCTIONS
from kubernetes_rules.cel.library_numbers import QUANTITY
from kubernetes_rules.cel.types import Overload, Type, Uint

DEVICE = Type("kubernetes.DRADevice")
_DEVICE_FIELDS = {
    "driver": types.STRING,
    "allowMultipleAllocations": types.BOOL,
    "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.DYN)),
    "capacity": types.map_of(types.STRING, types.map_of(types.STRING, QUANTITY)),
}
_ERROR = Type("!error!")
_DYNAMIC = frozenset(("dyn", "!error!"))
_SHOWN = {
    "google.protobuf.Timestamp": "timestamp",
    "google.protobuf.Duration": "duration",
    "null_type": "null",
}
_MOST_NODES = 100_000
"""Each level of nested optMap() doubles its operand: without a limit, checking a short text would not end."""
_TYPES = (
    types.BOOL,
    types.BYTES,
    types.DOUBLE,
    types.DURATION,
    types.INT,
    types.NULL,
    types.STRING,
    types.TIMESTAMP,
    types.UINT,
)
_TYPE_NAMES: dict[str, Type] = {
    **{kind.name: kind for kind in _TYPES},
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "type": Type("type"),
    "optional_type": types.optional_of(types.DYN),
}
_LITERALS = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}

_PRIMITIVE = frozenset(("bool", "int", "uint", "double", "string", "bytes", "null_type", "type"))
_GENERIC_OR_TYPE = frozenset(("list", "map"))


class TypeInvalid(syntax.ExpressionInvalid):
    """An expression is wrong whatever its values are."""


class Checker:
    """Checks one tree; see ``check``. ``issues`` are positions and messages of what is wrong."""

    def __init__(self, variables: Mapping[str, syntax.Variable]) -> None:
        self._outermost = dict(variables)
        self.issues: list[tuple[int, str]] = []
        self._scopes: list[dict[str, syntax.Variable]] = [self._outermost]
        self.bindings = Bindings()
        self.nodes: list[syntax.Node] = []
        self._free = 0

    def final(self, kind: Type) -> Type:
        """The type without type parameters: unbound ones become dyn."""
        return _substitute(self.bindings, kind, free_to_dyn=True)

    def check(self, node: syntax.Node) -> Type:
        """The type of a part, which is also written into it. Raises TypeInvalid for a very large tree."""
        match node:
            case syntax.Literal():
                kind = _LITERALS[type(node.value)]
            case syntax.Ident():
                kind = self._ident(node)
            case syntax.Select():
                kind = self._select(node)
            case syntax.Call():
                kind = self._call(node)
            case syntax.ListLiteral():
                kind = self._list(node)
            case syntax.MapLiteral():
                kind = self._map(node)
            case syntax.Fold():
                kind = self._fold(node)
            case syntax.MessageLiteral():
                kind = self._undeclared(node, node.name)
            case _:
                raise TypeInvalid("an unknown kind of expression")
        node.type = kind
        self.nodes.append(node)
        if len(self.nodes) > _MOST_NODES:
            raise TypeInvalid(f"it has more than {_MOST_NODES} parts, macros expanded")
        return kind

    def _wrong(self, node: syntax.Node, message: str) -> Type:
        self.issues.append((node.at, message))
        return _ERROR

    def _undeclared(self, node: syntax.Node, name: str) -> Type:
        return self._wrong(node, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: syntax.Node, wanted: Type, found: Type) -> Type:
        return self._wrong(node, f"expected type '{shown_type(wanted)}' but found '{shown_type(found)}'")

    def _free_parameter(self) -> Type:
        self._free += 1
        return Type(f"<{self._free}>")

    def _bound(self, kind: Type) -> Type:
        return _substitute(self.bindings, kind)

    def _ident(self, node: syntax.Ident) -> Type:
        variable = self._found(node.name)
        if variable is not None:
            node.meaning = variable
            return variable.type
        kind = _TYPE_NAMES.get(node.name.removeprefix("."))
        if kind is None:
            return self._undeclared(node, node.name)
        node.meaning = Type(kind.name)
        return types.type_of(kind)

    def _found(self, name: str) -> syntax.Variable | None:
        if name.startswith("."):
            return self._outermost.get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _select(self, node: syntax.Select) -> Type:
        # A type such as google.protobuf.Duration is parsed like a chain of fields.
        name = None if node.test_only else qualified_name(node)
        if name in _TYPE_NAMES and name is not None:
            node.constant = Type(name)
            return types.type_of(_TYPE_NAMES[name])
        kind = self._field(node, node.operand, node.field, optional=False)
        return types.BOOL if node.test_only else self._bound(kind)

    def _field(self, node: syntax.Node, operand: syntax.Node, field: str, *, optional: bool) -> Type:
        kind = self._bound(self.check(operand))
        if kind.name == "optional_type":
            kind, optional = kind.parameters[0], True
        if kind.name == "map":
            result = kind.parameters[1]
        elif kind == DEVICE:
            result = _DEVICE_FIELDS.get(field) or self._wrong(node, f"undefined field '{field}'")
        elif _is_parameter(kind):
            self.bindings.are_assignable([types.DYN], [kind])
            result = types.DYN
        elif kind.name.startswith("kubernetes."):
            result = self._wrong(node, f"unexpected failed resolution of '{kind.name}'")
        else:
            if kind.name not in _DYNAMIC:
                self._wrong(node, f"type '{shown_type(kind)}' does not support field selection")
            result = types.DYN
        return types.optional_of(result) if optional else result

    def _call(self, node: syntax.Call) -> Type:
        if node.function == "_?._":
            operand, field = node.arguments
            name = field.value if isinstance(field, syntax.Literal) else ""
            return self._bound(self._field(node, operand, name, optional=True))
        for argument in node.arguments:
            self.check(argument)
        # ``a.b.f(x)`` may be the function ``a.b.f``, such as ``sets.contains``, or the method f of ``a.b``.
        if node.target is not None:
            prefix = qualified_name(node.target)
            name = f"{prefix}.{node.function}".removeprefix(".")
            if prefix is not None and name in FUNCTIONS:
                node.function, node.target = name, None
            else:
                self.check(node.target)
        overloads = FUNCTIONS.get(node.function.removeprefix("."))
        if overloads is None:
            return self._undeclared(node, node.function)
        node.function = node.function.removeprefix(".")
        return self._resolve(node, overloads)

    def _resolve(self, node: syntax.Call, overloads: tuple[Overload, ...]) -> Type:
        given = [argument.type for argument in node.all_arguments()]
        if node.function in ("_&&_", "_||_"):
            node.overloads = overloads
            logical = types.BOOL
            for argument in node.arguments:
                if not self.bindings.are_assignable([argument.type], [types.BOOL]):
                    logical = self._mismatch(argument, types.BOOL, argument.type)
            return logical
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
            elif result != types.DYN and produced != result:
                result = types.DYN
        if result is None:
            names = [shown_type(self.final(kind)) for kind in given]
            target = "" if node.target is None else f"{names.pop(0)}."
            signature = f"{target}({', '.join(names)})"
            return self._wrong(
                node, f"found no matching overload for '{node.function}' applied to '{signature}'"
            )
        node.overloads = tuple(fitting)
        return result

    def _instance(self, overload: Overload) -> tuple[list[Type], Type]:
        """The parameters and the result, with fresh type parameters for this call."""
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
        return _most_general(before, kind) if self.bindings.are_assignable([before], [kind]) else types.DYN

    def _unwrapped(self, node: syntax.Node, kind: Type) -> Type:
        if kind.name == "optional_type":
            return kind.parameters[0]
        if kind.name != "dyn":
            self._mismatch(node, types.optional_of(kind), kind)
        return kind

    def _list(self, node: syntax.ListLiteral) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            kind = self.check(element)
            if index in node.optional:
                kind = self._unwrapped(element, kind)
            joined = self._joined(joined, kind)
        return types.list_of(joined or self._free_parameter())

    def _map(self, node: syntax.MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._joined(keys, self.check(key))
            kind = self.check(value)
            values = self._joined(values, self._unwrapped(value, kind) if optional else kind)
        return types.map_of(keys or self._free_parameter(), values or self._free_parameter())

    def _fold(self, node: syntax.Fold) -> Type:
        items = self.check(node.items)
        gathered = self.check(node.initial)
        first, second = self._item_types(node, self._bound(items))
        accumulator = syntax.Variable(node.accumulator, gathered)
        self._scopes.append({node.accumulator: accumulator})
        variables = {node.variable: syntax.Variable(node.variable, first)}
        if node.second:
            variables[node.second] = syntax.Variable(node.second, second)
        self._scopes.append(variables)
        for part, wanted in ((node.condition, types.BOOL), (node.step, gathered)):
            if not self.bindings.are_assignable([wanted], [self.check(part)]):
                self._mismatch(part, wanted, part.type)
        # The result can read the accumulator, but not the variables of the items.
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        node.gathered, node.item_variables = accumulator, tuple(variables.values())
        return self._bound(result)

    def _item_types(self, node: syntax.Fold, kind: Type) -> tuple[Type, Type]:
        if kind.name == "list":
            return (types.INT, kind.parameters[0]) if node.second else (kind.parameters[0], types.DYN)
        if kind.name == "map":
            return kind.parameters[0], kind.parameters[1]
        if kind.name in _DYNAMIC or _is_parameter(kind):
            self.bindings.are_assignable([types.DYN], [kind])
            return types.DYN, types.DYN
        wanted = "cannot be range of a comprehension (must be list, map, or dynamic)"
        self._wrong(node.items, f"expression of type '{shown_type(kind)}' {wanted}")
        return _ERROR, _ERROR


def shown_type(kind: Type) -> str:
    """The type in messages (cel-go, checker/format.go)."""
    name = _SHOWN.get(kind.name, kind.name)
    return f"{name}({', '.join(map(shown_type, kind.parameters))})" if kind.parameters else name


def qualified_name(node: syntax.Node) -> str | None:
    """The text of a part that is only names and dots, ``a.b.c``; None for any other."""
    if isinstance(node, syntax.Ident):
        return node.name
    if isinstance(node, syntax.Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


class Bindings(dict[Type, Type]):
    """The types of type parameters. A journal of the changes lets a failed attempt be undone."""

    __slots__ = ("_journal",)

    def __init__(self) -> None:
        super().__init__()
        self._journal: list[tuple[Type, Type | None]] = []

    def bind(self, parameter: Type, kind: Type) -> None:
        """Set the type of a parameter."""
        self._journal.append((parameter, self.get(parameter)))
        self[parameter] = kind

    def are_assignable(self, left: list[Type], right: list[Type]) -> bool:
        """Whether each left type is assignable to the right one; only then the parameters are bound."""
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
    """Whether the type is a type parameter."""
    return kind.name[0] == "<"


def _is_nullable(kind: Type) -> bool:
    """Whether null is assignable to the type: times, messages and opaque types."""
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
    if left.name in _DYNAMIC or right.name in _DYNAMIC:
        return True
    if left.name == "null_type":
        return _is_nullable(right)
    if right.name == "null_type":
        return _is_nullable(left)
    if left.name != right.name:
        return False
    return left.name == "type" or _all_assignable(bindings, list(left.parameters), list(right.parameters))


def _binds(bindings: Bindings, kind: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether a type can be bound to a parameter, and whether the parameter was bound before."""
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
    """The type with its parameters replaced by the types bound to them; free ones by dyn if so wanted."""
    bound = bindings.get(kind)
    if bound is not None:
        return _substitute(bindings, bound, free_to_dyn=free_to_dyn)
    if _is_parameter(kind):
        return types.DYN if free_to_dyn else kind
    if not kind.parameters:
        return kind
    parts = tuple(_substitute(bindings, part, free_to_dyn=free_to_dyn) for part in kind.parameters)
    return Type(kind.name, parts)
