"""Evaluates CEL expressions of the node configuration over a mapping of plain values.

The parser and interpreter are cel-python's. It is imported on first use: a node without rules never
pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from driver.errors import ConfigError

MAX_EXPRESSION_CHARACTERS = 10 * 1024
"""The limit that resource.k8s.io/v1 sets for CEL selectors; ours is the same."""


@lru_cache(maxsize=256)
def compile_predicate(expression: str) -> Any:
    """Parse an expression that shall be true or false; raises ConfigError with what is wrong in it."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise ConfigError(
            f"a CEL expression has {len(expression)} characters", f"use at most {MAX_EXPRESSION_CHARACTERS}"
        )
    import celpy
    from celpy.celparser import CELParseError

    environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
    try:
        return environment.program(environment.compile(expression))
    except (CELParseError, RecursionError) as error:
        raise ConfigError(
            f"the CEL expression {expression!r} cannot be parsed: {error}", "correct the expression"
        ) from error


def holds(expression: str, variable: str, values: Mapping[str, bool | int | str]) -> bool:
    """Whether the expression is true where ``variable`` is a map of these values.

    Raises ConfigError when it cannot be evaluated (a missing key that was not tested with ``has()``,
    values of unlike types) or when its result is neither true nor false.
    """
    program = compile_predicate(expression)
    from celpy import celtypes
    from celpy.adapter import json_to_cel
    from celpy.evaluation import CELEvalError

    try:
        result = program.evaluate({variable: json_to_cel(dict(values))})
    except (CELEvalError, TypeError, ValueError, RecursionError) as error:
        reason = error.args[0] if error.args else error
        raise ConfigError(
            f"the CEL expression {expression!r} cannot be evaluated: {reason}",
            f"test for what may be absent, with has({variable}.field)",
        ) from error
    if not isinstance(result, celtypes.BoolType):
        raise ConfigError(f"the CEL expression {expression!r} gives {result!r}", "it must give true or false")
    return bool(result)
