"""Evaluates CEL expressions of the node configuration over a mapping of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from driver.errors import ConfigError

if TYPE_CHECKING:
    from kubernetes_rules.cel.program import Program

MAX_EXPRESSION_CHARACTERS = 10 * 1024
"""The limit that resource.k8s.io/v1 has for CEL selectors."""


class ValueUnknown(ConfigError):
    """A value that a rule uses could not be read from the GPU yet."""


@lru_cache(maxsize=256)
def compile_predicate(expression: str, variable: str = "gpu") -> Program:
    """Compile an expression over one variable; raises ConfigError with what is wrong in it."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ConfigError(
            f"a CEL expression has {len(expression)} characters, which is too long",
            f"use at most {MAX_EXPRESSION_CHARACTERS}",
        )
    # Imported on first use, so that a node without rules does not load the compiler.
    from kubernetes_rules.cel.lexer import SyntaxInvalid
    from kubernetes_rules.cel.program import compile_program
    from kubernetes_rules.cel.types import DYN

    try:
        return compile_program(expression, variable, DYN)
    except ValueError as error:
        problem = "cannot be parsed" if isinstance(error, SyntaxInvalid) else "has an error"
        raise ConfigError(
            f"the CEL expression {expression!r} {problem}: {error}", "correct the expression"
        ) from error


def holds(expression: str, variable: str, values: Mapping[str, bool | int | str]) -> bool:
    """Whether the expression is true if ``variable`` is a map of these values.

    Raises ConfigError if it cannot be evaluated (a missing key that is not tested with ``has()``, operands of
    a wrong type) or if its result is neither true nor false.
    """
    program = compile_predicate(expression, variable)
    from kubernetes_rules.cel.program import NoValue

    try:
        result = program.run(dict(values)).value
    except NoValue as error:
        raise ConfigError(
            f"the CEL expression {expression!r} cannot be evaluated: {error}",
            f"test whether it exists, with has({variable}.field)",
        ) from error
    if result is True or result is False:
        return bool(result)
    raise ConfigError(f"the CEL expression {expression!r} gives {result!r}", "it must give true or false")
