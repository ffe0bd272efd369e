"""Compiles an expression on one variable, and evaluates it.

It also refuses literals that are wrong although their types fit (cel-go, cel/validator.go). This module
imports everything that takes long to import, so a process that compiles no expression does not import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.checker import Checker, TypeInvalid
from kubernetes_rules.cel.frame import Aborted, Evaluate, check_cost
from kubernetes_rules.cel.lexer import SyntaxInvalid
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.library_strings import TYPES_OF_VERBS, clauses
from kubernetes_rules.cel.parser import parse
from kubernetes_rules.cel.plan import Planner
from kubernetes_rules.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node
from kubernetes_rules.cel.types import BOOL, DYN, CelError, Type
from kubernetes_rules.cel.values import Optional


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
    """A compiled expression. ``parts`` are the terms joined by ``&&``, with their text. Thread-safe."""

    evaluate: Evaluate = field(repr=False)
    slots: int
    parts: tuple[tuple[str, Evaluate], ...] = field(repr=False)

    def run(self, value: Any, part: Evaluate | None = None) -> Evaluation:
        """Evaluates the program, or a part of it, for a value of the variable. Raises NoValue."""
        # COST, WORK and DEVICE, then the slots of variables.
        frame = [0, 0, value] + [None] * self.slots
        try:
            result = (part or self.evaluate)(frame)
            check_cost(frame)
        except (CelError, Aborted) as error:
            raise NoValue(str(error)) from error
        except RecursionError as error:
            raise NoValue("it is nested too deeply") from error
        return Evaluation(result, frame[0])


def compile_program(expression: str, variable: str, kind: Type) -> Program:
    """The program of an expression that is true or false of a variable.

    Raises SyntaxInvalid if the text is not an expression, TypeInvalid if it is wrong whatever the value.
    """
    try:
        tree = parse(expression)
        checker = Checker({variable: syntax.Variable(variable, kind)})
        result = checker.final(checker.check(tree))
        _check_literals(checker, tree)
        if result not in (BOOL, DYN):
            raise TypeInvalid(f"it must evaluate to bool or the unknown type, not {result}")
        planner = Planner(checker.final)
        evaluate = planner.planned(tree)
        terms = tree.arguments if isinstance(tree, Call) and tree.function == "_&&_" else [tree]
        parts = tuple((expression[term.start : term.end], planner.planned(term)) for term in terms)
    except RecursionError as error:
        raise SyntaxInvalid("it is nested too deeply") from error
    return Program(evaluate, planner.slots, parts)


def _check_literals(checker: Checker, tree: Node) -> None:
    """Raises TypeInvalid for lists and maps of several types, wrong regular expressions and format texts."""
    # Kubernetes compiles with HomogeneousAggregateLiterals, which exempts the arguments of format().
    exempt = {id(node) for call in _format_calls(tree) for node in syntax.descendants(call)}
    for node in checker.nodes:
        match node:
            case ListLiteral() if id(node) not in exempt:
                _check_same(
                    [
                        _kind(checker, item, index in node.optional)
                        for index, item in enumerate(node.elements)
                    ],
                    node,
                )
            case MapLiteral() if id(node) not in exempt:
                _check_same([_kind(checker, key, optional=False) for key, _, _ in node.entries], node)
                _check_same([_kind(checker, value, optional) for _, value, optional in node.entries], node)
            case Call(function="matches", arguments=[Literal(value=str() as pattern), *_]):
                # cel-go checks the first argument, which in matches(a, b) is the text, not the pattern.
                try:
                    compiled(pattern)
                except CelError as error:
                    raise TypeInvalid(
                        f"the argument at character {node.arguments[0].start}: {error}"
                    ) from error
            case Call(
                function="format", target=Literal(value=str() as text), arguments=[ListLiteral() as values]
            ):
                _check_format(checker, text, values)


def _format_calls(tree: Node) -> list[Call]:
    return [node for node in syntax.descendants(tree) if isinstance(node, Call) and node.function == "format"]


def _check_format(checker: Checker, text: str, values: ListLiteral) -> None:
    count = 0
    try:
        for clause in clauses(text, len(values.elements)):
            if clause.verb:
                _check_verb(checker, clause.verb, values.elements[count])
                count += 1
    except CelError as error:
        raise TypeInvalid(f"the format of the values at character {values.start}: {error}") from error
    if count < len(values.elements):
        raise TypeInvalid(f"the format of the values at character {values.start} takes {count}")


def _check_verb(checker: Checker, verb: str, node: Node) -> None:
    kind = checker.final(node.type).name
    if kind != "dyn" and kind not in TYPES_OF_VERBS[verb]:
        raise TypeInvalid(f"%{verb} at character {node.start} is no format for {kind}")
    if verb == "s" and isinstance(node, ListLiteral | MapLiteral):
        for part in syntax.children(node):
            _check_verb(checker, verb, part)


def _kind(checker: Checker, node: Node, optional: bool) -> Type:
    kind = checker.final(node.type)
    if not optional:
        return kind
    if not kind.parameters:
        # The check in Kubernetes panics here. Refusing the expression keeps it out of a scheduler.
        raise TypeInvalid(f"whether the value at character {node.start} is optional is not known")
    return kind.parameters[0]


def _check_same(kinds: list[Type], node: Node) -> None:
    for kind in kinds[1:]:
        if kind != kinds[0]:
            raise TypeInvalid(f"the literal at character {node.start} holds {kinds[0]} and {kind}")
