"""Expands macros into folds (cel-go: parser/macro.go, ext/comprehensions.go, cel/library.go)."""

from __future__ import annotations

from collections.abc import Callable

from kubernetes_rules.cel.lexer import SyntaxInvalid
from kubernetes_rules.cel.syntax import (
    ACCUMULATOR,
    UNUSED,
    Call,
    Fold,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)

_INSERT = "cel.@mapInsert"


def expanded(call: Call) -> Node:
    """What a call is when its name is a macro's, else the call itself.

    Raises SyntaxInvalid when it is a macro with arguments that it cannot have.
    """
    expand = _MACROS.get((call.function, len(call.arguments), call.target is not None))
    node = expand(call) if expand else None
    if node is None:
        return call
    node.start, node.end = call.start, call.end
    return node


def _call(function: str, *arguments: Node) -> Call:
    return Call(function, None, list(arguments))


def _accumulator() -> Ident:
    return Ident(ACCUMULATOR)


def _variable(node: Node) -> str:
    if not isinstance(node, Ident):
        raise SyntaxInvalid(f"the argument at character {node.start} must be a simple name")
    if node.name in (ACCUMULATOR, "__result__"):
        raise SyntaxInvalid(f"{node.name} at character {node.start} is the macro's own variable")
    return node.name


def _two_variables(call: Call) -> tuple[str, str]:
    first, second = call.arguments[0], call.arguments[1]
    if not isinstance(first, Ident) or not isinstance(second, Ident) or first.name == second.name:
        raise SyntaxInvalid(f"{call.function} at character {call.start} needs two different names")
    return _variable(first), _variable(second)


def _target(call: Call) -> Node:
    return call.target or Ident("")  # the macros that use it are found for calls with a target only


def _has(call: Call) -> Node:
    field = call.arguments[0]
    if not isinstance(field, Select) or field.test_only:
        raise SyntaxInvalid(f"has() at character {call.start} needs a field, as in has(a.b)")
    return Select(field.operand, field.field, test_only=True)


def _quantifier(call: Call) -> Node:
    """``all``, ``exists`` and ``exists_one``, with one variable or two."""
    if len(call.arguments) == 3:
        first, second = _two_variables(call)
    else:
        first, second = _variable(call.arguments[0]), ""
    predicate = call.arguments[-1]
    result: Node = _accumulator()
    if call.function == "all":
        initial: Node = Literal(value=True)
        condition: Node = _call("@not_strictly_false", _accumulator())
        step = _call("_&&_", _accumulator(), predicate)
    elif call.function == "exists":
        initial = Literal(value=False)
        condition = _call("@not_strictly_false", _call("!_", _accumulator()))
        step = _call("_||_", _accumulator(), predicate)
    else:
        initial = Literal(0)
        condition = Literal(value=True)
        step = _call("_?_:_", predicate, _call("_+_", _accumulator(), Literal(1)), _accumulator())
        result = _call("_==_", _accumulator(), Literal(1))
    return Fold(_target(call), first, second, ACCUMULATOR, initial, condition, step, result)


def _gather(call: Call, first: str, second: str, initial: Node, step: Node, predicate: Node | None) -> Node:
    if predicate is not None:
        step = _call("_?_:_", predicate, step, _accumulator())
    return Fold(_target(call), first, second, ACCUMULATOR, initial, Literal(value=True), step, _accumulator())


def _appended(element: Node) -> Node:
    return _call("_+_", _accumulator(), ListLiteral([element]))


def _map(call: Call) -> Node:
    predicate = call.arguments[1] if len(call.arguments) == 3 else None
    variable = _variable(call.arguments[0])
    return _gather(call, variable, "", ListLiteral([]), _appended(call.arguments[-1]), predicate)


def _filter(call: Call) -> Node:
    variable, predicate = call.arguments
    return _gather(call, _variable(variable), "", ListLiteral([]), _appended(variable), predicate)


def _transform_list(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    return _gather(call, first, second, ListLiteral([]), _appended(call.arguments[-1]), predicate)


def _transform_map(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    step = _call(_INSERT, _accumulator(), Ident(first), call.arguments[-1])
    return _gather(call, first, second, MapLiteral([]), step, predicate)


def _transform_map_entry(call: Call) -> Node:
    first, second = _two_variables(call)
    predicate = call.arguments[2] if len(call.arguments) == 4 else None
    step = _call(_INSERT, _accumulator(), call.arguments[-1])
    return _gather(call, first, second, MapLiteral([]), step, predicate)


def _bound(name: Node, value: Node, body: Node) -> Node:
    """A fold over nothing, whose accumulator is the variable."""
    if not isinstance(name, Ident):
        raise SyntaxInvalid(f"the argument at character {name.start} must be a simple name")
    return Fold(ListLiteral([]), UNUSED, "", name.name, value, Literal(value=False), Ident(name.name), body)


def _bind(call: Call) -> Node | None:
    if not isinstance(call.target, Ident) or call.target.name != "cel":
        return None
    return _bound(*call.arguments)


def _optional_map(call: Call) -> Node:
    target = _target(call)
    name, body = call.arguments
    bound = _bound(name, Call("value", target, []), body)
    if call.function == "optMap":
        bound = _call("optional.of", bound)
    return _call("_?_:_", Call("hasValue", target, []), bound, _call("optional.none"))


def _sort_by(call: Call) -> Node | None:
    """``x.sortBy(v, key)``: bound to a variable of its own, its keys are mapped and sorted along."""
    name = "@__sortBy_input__"
    variable, key = call.arguments
    if not isinstance(variable, Ident):
        raise SyntaxInvalid(f"sortBy() at character {call.start} needs a simple name")
    keys = _map(Call("map", Ident(name), [variable, key]))
    return _bound(Ident(name), _target(call), Call("@sortByAssociatedKeys", Ident(name), [keys]))


_MACROS: dict[tuple[str, int, bool], Callable[[Call], Node | None]] = {
    ("has", 1, False): _has,
    **{(name, count, True): _quantifier for name in ("all", "exists", "exists_one") for count in (2, 3)},
    ("existsOne", 3, True): _quantifier,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    **{("transformList", count, True): _transform_list for count in (3, 4)},
    **{("transformMap", count, True): _transform_map for count in (3, 4)},
    **{("transformMapEntry", count, True): _transform_map_entry for count in (3, 4)},
    ("bind", 3, True): _bind,
    ("optMap", 2, True): _optional_map,
    ("optFlatMap", 2, True): _optional_map,
    ("sortBy", 2, True): _sort_by,
}
