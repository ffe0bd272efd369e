"""Checks the CEL expressions of device selectors by compiling them."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.errors import FieldError, invalid, required, too_long
from kubernetes_rules.validation.lists import list_errors

Object = dict[str, Any]

_MOST_SELECTORS = 32
_EXPRESSION_BYTES = 10 * 1024


def selector_list_errors(selectors: list[Object] | None, path: str) -> list[FieldError]:
    """The errors of a list of selectors; how many there may be is a declared rule."""
    if len(selectors or []) > _MOST_SELECTORS:
        return []
    return list_errors(selectors, path, None, _selector_errors)


def _selector_errors(selector: Object, path: str) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    expression, here = cel.get("expression") or "", f"{path}.cel.expression"
    if len(expression.encode()) > _EXPRESSION_BYTES:
        return [too_long(here, _EXPRESSION_BYTES)]
    return _compile_errors(expression, here)


def _compile_errors(expression: str, path: str) -> list[FieldError]:
    # Compiling needs the whole of CEL; whoever checks no expression need not load it.
    from kubernetes_rules.cel.selector import SelectorInvalid, compile_selector

    try:
        compile_selector(expression)
    except SelectorInvalid as error:
        return [invalid(path, expression, f"compilation failed: {error.what}")]
    return []
