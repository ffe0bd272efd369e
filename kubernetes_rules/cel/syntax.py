"""The tree of a parsed expression, with its macros expanded (cel-spec, langdef.md).

``start`` and ``end`` are the position of a part in the source text, in characters. ``at`` is the character
that errors of this part name: that of an operator, a dot or an opening bracket. The checker sets ``type``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.cel.types import DYN, Overload, Type

ACCUMULATOR = "@result"
"""The variable in which a macro builds its result; no source text can name it."""
UNUSED = "#unused"


class ExpressionInvalid(ValueError):
    """An expression is refused before it runs. ``issues`` are positions, in characters, and messages."""

    def __init__(self, message: str, at: int = -1, more: tuple[tuple[int, str], ...] = ()) -> None:
        self.issues = ((at, message), *more)
        texts = (text if place < 0 else f"{text} at character {place}" for place, text in self.issues)
        super().__init__("; ".join(texts))


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A part of an expression."""

    start: int = 0
    end: int = 0
    at: int = -1
    type: Type = DYN


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A literal in the text."""

    value: Any


@dataclass(slots=True, eq=False)
class Variable:
    """One variable; two of the same name are different. ``slot`` is the index of its value in the frame."""

    name: str
    type: Type = DYN
    slot: int = -1


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name; the checker sets ``meaning`` to the variable or the type."""

    name: str
    meaning: Variable | Type = DYN


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.field``, or ``has(operand.field)``.

    The checker sets ``constant`` if it names a type.
    """

    operand: Node
    field: str
    test_only: bool = False
    constant: Type | None = None


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function or an operator. ``overloads`` are the signatures that fit; the checker sets them."""

    function: str
    target: Node | None
    arguments: list[Node]
    overloads: tuple[Overload, ...] = ()

    def all_arguments(self) -> list[Node]:
        """The receiver, if there is one, and the arguments."""
        return self.arguments if self.target is None else [self.target, *self.arguments]


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """``[a, ?b]``."""

    elements: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """``{a: b, ?c: d}``: keys, values and whether the value is optional."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class MessageLiteral(Node):
    """``a.b{c: d}``."""

    name: str
    fields: list[tuple[str, Node, bool]]


@dataclass(slots=True, eq=False)
class Fold(Node):
    """The expansion of most macros: a loop over ``items`` (cel-go: ComprehensionExpr).

    The checker sets ``gathered`` and ``item_variables``, the variables of the accumulator and the items.
    """

    items: Node
    variable: str
    second: str
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node
    gathered: Variable = field(default_factory=lambda: Variable(ACCUMULATOR))
    item_variables: tuple[Variable, ...] = ()


def children(node: Node) -> list[Node]:
    """The direct parts of a part."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return node.all_arguments()
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return [part for key, value, _ in node.entries for part in (key, value)]
        case MessageLiteral():
            return [value for _, value, _ in node.fields]
        case Fold():
            return [node.items, node.initial, node.condition, node.step, node.result]
    return []


def descendants(node: Node) -> Iterator[Node]:
    """The part itself and all parts below it."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(children(found))


def names_read(tree: Node, variable: str) -> frozenset[tuple[str, str, str]] | None:
    """What an expression reads of a device, if nothing else can decide its value; None if that is not known.

    Each is a field (``attributes`` or ``capacity``), a domain and a name. ``driver`` and
    ``allowMultipleAllocations`` may be read as well.
    """
    found: set[tuple[str, str, str]] = set()
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case Select(operand=Ident(name=name), field="driver" | "allowMultipleAllocations") if (
                name == variable
            ):
                pass
            case Select(operand=Call() as domain, field=name) if place := _domain_read(domain, variable):
                found.add((*place, name))
            case Call(function="@in", arguments=[Literal(value=str() as name), Call() as domain]) if (
                place := _domain_read(domain, variable)
            ):
                found.add((*place, name))
            case Ident(name=name) if name == variable:
                return None
            case node:
                waiting.extend(children(node))
    return frozenset(found)


def _domain_read(call: Call, variable: str) -> tuple[str, str] | None:
    """The field and the domain of ``device.attributes["DOMAIN"]``, or of a capacity."""
    match call:
        case Call(
            function="_[_]",
            arguments=[
                Select(operand=Ident(name=name), field="attributes" | "capacity" as field, test_only=False),
                Literal(value=str() as domain),
            ],
        ) if name == variable:
            return field, domain
    return None
