"""Compiles an expression on its variables, and evaluates it.

It also refuses literals that are wrong although their types fit (cel-go, cel/validator.go), and makes the
value of ``device`` (k8s.io/dynamic-resource-allocation/cel/compile.go). This module imports everything that
takes long to import, so a process that compiles no expression does not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.attributes import DomainMap
from kubernetes_rules.cel.checker import Checker, TypeInvalid, shown_type
from kubernetes_rules.cel.lexer import SyntaxInvalid
from kubernetes_rules.cel.library_numbers import parse_quantity, parse_semver
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.library_strings import TYPES_OF_VERBS, clauses
from kubernetes_rules.cel.operators import (
    COST,
    Aborted,
    DeviceMap,
    Evaluate,
    Frame,
    check_cost,
)
from kubernetes_rules.cel.parser import parse
from kubernetes_rules.cel.plan import Planner
from kubernetes_rules.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node
from kubernetes_rules.cel.times import parse_duration, parse_timestamp
from kubernetes_rules.cel.types import BOOL, DYN, CelError, Type
from kubernetes_rules.cel.values import Optional


def _plain(value: Any) -> Any:
    return value


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: tuple(map(convert, values))


# Kubernetes 1.37 evaluates lists even if DRAListTypeAttributes, the gate for publishing them, is off.
_KINDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("ints", _each(_plain)),
    ("bools", _each(_plain)),
    ("strings", _each(_plain)),
    ("versions", _each(parse_semver)),
    ("int", _plain),
    ("bool", _plain),
    ("string", _plain),
    ("version", parse_semver),
)
"""The fields of an attribute; the first that is set counts."""


def device_value(
    driver: str,
    attributes: Mapping[str, Mapping[str, Any]],
    capacity: Mapping[str, Mapping[str, Any]],
    *,
    allow_multiple_allocations: bool,
) -> dict[str, Any]:
    """The value of a device, from the attributes and capacity of a slice's JSON.

    Raises CelError or KeyError for an attribute or a capacity of an unknown kind.
    """
    return {
        "driver": driver,
        "allowMultipleAllocations": allow_multiple_allocations,
        "attributes": _by_domain(attributes, driver, _attribute),
        "capacity": _by_domain(capacity, driver, _quantity),
    }


def _by_domain(
    named: Mapping[str, Mapping[str, Any]], driver: str, convert: Callable[[Mapping[str, Any]], Any]
) -> DomainMap:
    domains = DomainMap()
    # A name without a domain is in the driver's domain: ``foo`` and ``DRIVER/foo`` are one key here.
    for name, value in named.items():
        domain, slash, identifier = name.partition("/")
        if not slash:
            domain, identifier = driver, name
        domains.setdefault(domain, DeviceMap())[identifier] = convert(value)
    return domains


def _attribute(value: Mapping[str, Any]) -> Any:
    for kind, convert in _KINDS:
        if value.get(kind) is not None:
            return convert(value[kind])
    raise CelError("unsupported attribute value")


def _quantity(value: Mapping[str, Any]) -> Any:
    return parse_quantity(str(value.get("value", "0")))


def is_ordinary(
    attributes: Mapping[str, Mapping[str, Any]], capacity: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Whether ``device_value`` surely makes a value of these; lists of versions are not looked into."""
    kinds = (next(iter(one.items())) if len(one) == 1 else ("", None) for one in attributes.values())
    amounts = (("quantity", one.get("value")) for one in capacity.values())
    return all(_is_readable(kind, value) for kind, value in (*kinds, *amounts))


def _is_readable(kind: str, value: Any) -> bool:
    if kind in ("version", "quantity"):
        return type(value) is str and _converts(kind, value)
    if kind in ("ints", "bools", "strings"):
        return type(value) is list
    return kind in ("int", "bool", "string") and value is not None


@lru_cache(maxsize=4096)
def _converts(kind: str, text: str) -> bool:
    try:
        parse_semver(text) if kind == "version" else parse_quantity(text)
    except CelError:
        return False
    return True


class NoValue(Exception):
    """An evaluation failed, or costs too much."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation: a value, usually a bool, and the units it cost."""

    value: Any
    cost: int

    def truth(self) -> bool | None:
        """The value if it is a bool, or an optional with a bool; else None."""
        value = self.value
        while isinstance(value, Optional) and value.present:
            value = value.value
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. ``parts`` are the terms joined by ``&&``, with their text. Thread-safe.

    ``reads`` is what it reads of a device, see ``names_read``.
    """

    evaluate: Evaluate = field(repr=False)
    slots: int
    parts: tuple[tuple[str, Evaluate], ...] = field(default=(), repr=False)
    reads: frozenset[tuple[str, str, str]] | None = None

    def run(self, value: Any, part: Evaluate | None = None) -> Evaluation:
        """Evaluates the program, or a part of it, for a value of its only variable. Raises NoValue."""
        # COST, WORK and DEVICE, then the slots of variables.
        return _run(part or self.evaluate, [0, 0, value] + [None] * self.slots)


def _run(evaluate: Evaluate, frame: Frame) -> Evaluation:
    try:
        result = evaluate(frame)
        check_cost(frame)
    except (CelError, Aborted) as error:
        raise NoValue(str(error)) from error
    except RecursionError as error:
        raise NoValue("it is nested too deeply") from error
    return Evaluation(result, frame[COST])


def _checked(tree: Node, checker: Checker) -> Type:
    result = checker.final(checker.check(tree))
    if not checker.issues:
        _check_literals(checker, tree)
    if checker.issues:
        (at, message), *more = checker.issues
        raise TypeInvalid(message, at, tuple(more))
    return result


def compile_program(expression: str, variable: str, kind: Type) -> Program:
    """The program of an expression that is true or false of a variable.

    Raises SyntaxInvalid if the text is not an expression, TypeInvalid if it is wrong whatever the value.
    """
    try:
        checker = Checker({variable: syntax.Variable(variable, kind)})
        tree = parse(expression)
        result = _checked(tree, checker)
        if result not in (BOOL, DYN):
            raise TypeInvalid(f"it must evaluate to bool or the unknown type, not {result}")
        planner = Planner(checker.final)
        evaluate = planner.planned(tree)
        terms = tree.arguments if isinstance(tree, Call) and tree.function == "_&&_" else [tree]
        parts = tuple((expression[term.start : term.end], planner.planned(term)) for term in terms)
    except RecursionError as error:
        raise SyntaxInvalid("it is nested too deeply") from error
    return Program(evaluate, planner.slots, parts, syntax.names_read(tree, variable))


_LITERAL_ARGUMENTS: dict[str, Callable[[str], object]] = {
    "duration": parse_duration,
    "timestamp": parse_timestamp,
    "matches": compiled,
}
"""Functions whose first argument is checked if it is a literal text."""


def _check_literals(checker: Checker, tree: Node) -> None:
    """Notes issues of lists and maps of several types, wrong times, regular expressions and format texts."""
    # Kubernetes compiles with HomogeneousAggregateLiterals, which exempts the arguments of format().
    exempt = {id(node) for call in _format_calls(tree) for node in syntax.descendants(call)}
    for node in checker.nodes:
        match node:
            case ListLiteral() if id(node) not in exempt:
                _check_same(
                    checker,
                    [
                        (item, _kind(checker, item, index in node.optional))
                        for index, item in enumerate(node.elements)
                    ],
                )
            case MapLiteral() if id(node) not in exempt:
                _check_same(
                    checker, [(key, _kind(checker, key, optional=False)) for key, _, _ in node.entries]
                )
                _check_same(
                    checker, [(value, _kind(checker, value, optional)) for _, value, optional in node.entries]
                )
            # cel-go checks the first argument, which in matches(a, b) is the text, not the pattern.
            case Call(arguments=[Literal(value=str() as text), *_]) if node.function in _LITERAL_ARGUMENTS:
                try:
                    _LITERAL_ARGUMENTS[node.function](text)
                except CelError:
                    checker.issues.append((node.arguments[0].at, f"invalid {node.function} argument"))
            case Call(
                function="format", target=Literal(value=str() as text), arguments=[ListLiteral() as values]
            ):
                _check_format(checker, node, text, values)


def _format_calls(tree: Node) -> list[Call]:
    return [node for node in syntax.descendants(tree) if isinstance(node, Call) and node.function == "format"]


def _check_format(checker: Checker, node: Node, text: str, values: ListLiteral) -> None:
    count = 0
    try:
        for clause in clauses(text, len(values.elements)):
            if clause.verb:
                _check_verb(checker, clause.verb, values.elements[count])
                count += 1
    except CelError as error:
        checker.issues.append((node.at, str(error)))
        return
    if count < len(values.elements):
        problem = "too many arguments supplied to string.format"
        checker.issues.append((node.at, f"{problem} (expected {count}, got {len(values.elements)})"))


def _check_verb(checker: Checker, verb: str, node: Node) -> None:
    kind = checker.final(node.type).name
    if kind != "dyn" and kind not in TYPES_OF_VERBS[verb]:
        checker.issues.append((node.at, f"error during formatting: %{verb} is no format for {kind}"))
    if verb == "s" and isinstance(node, ListLiteral | MapLiteral):
        for part in syntax.children(node):
            _check_verb(checker, verb, part)


def _kind(checker: Checker, node: Node, optional: bool) -> Type:
    kind = checker.final(node.type)
    if not optional:
        return kind
    if not kind.parameters:
        # The check in Kubernetes panics here. Refusing the expression keeps it out of a scheduler.
        raise TypeInvalid("whether the value is optional is not known", node.at)
    return kind.parameters[0]


def _check_same(checker: Checker, kinds: list[tuple[Node, Type]]) -> None:
    for node, kind in kinds[1:]:
        if kind != kinds[0][1]:
            wanted, found = shown_type(kinds[0][1]), shown_type(kind)
            checker.issues.append((node.at, f"expected type '{wanted}' but found '{found}'"))
            return
