"""Compiles the text of an expression over one variable, and evaluates it.

Everything that takes long to import is below this module: who compiles nothing need not import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.cel.checker import Checker, TypeInvalid
from kubernetes_rules.cel.frame import Aborted, Evaluate, check_cost
from kubernetes_rules.cel.lexer import SyntaxInvalid
from kubernetes_rules.cel.library_values import Optional
from kubernetes_rules.cel.literals import check_literals
from kubernetes_rules.cel.parser import parse
from kubernetes_rules.cel.plan import Planner
from kubernetes_rules.cel.syntax import Call, Variable
from kubernetes_rules.cel.types import BOOL, DYN, CelError, Type


class NoValue(Exception):
    """An expression has no value: something failed, or it costs too much."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation gave: a value, usually a bool, and the units it cost."""

    value: Any
    cost: int

    def truth(self) -> bool | None:
        """The value if it is true or false, or an optional that holds one of them; else None."""
        value = self.value
        while isinstance(value, Optional) and value.present:
            value = value.value
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. ``parts`` are those joined by ``&&`` with their text. Thread-safe."""

    evaluate: Evaluate = field(repr=False)
    slots: int
    parts: tuple[tuple[str, Evaluate], ...] = field(repr=False)

    def run(self, value: Any, part: Evaluate | None = None) -> Evaluation:
        """Evaluates the program, or a part of it, for a value of the variable. Raises NoValue."""
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
    """The program that gives true or false for a variable of a type.

    Raises SyntaxInvalid when the text is no expression, TypeInvalid when it cannot be right.
    """
    try:
        tree = parse(expression)
        checker = Checker({variable: Variable(variable, kind)})
        result = checker.final(checker.check(tree))
        check_literals(checker, tree)
        if result not in (BOOL, DYN):
            raise TypeInvalid(f"it must evaluate to bool or the unknown type, not {result}")
        planner = Planner(checker.final)
        evaluate = planner.planned(tree)
        terms = tree.arguments if isinstance(tree, Call) and tree.function == "_&&_" else [tree]
        parts = tuple((expression[term.start : term.end], planner.planned(term)) for term in terms)
    except RecursionError as error:
        raise SyntaxInvalid("it is nested too deeply") from error
    return Program(evaluate, planner.slots, parts)
