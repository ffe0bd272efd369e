"""Checks node selectors and node names of core/v1."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.field import FieldError, all_invalid, forbidden, invalid, required
from kubernetes_rules.validation.names import dns_subdomain, label_key, label_value

Object = dict[str, Any]

_NOT_OPERATOR = "not a valid selector operator"


def node_selector_errors(selector: Object, path: str) -> list[FieldError]:
    """The errors of a NodeSelector."""
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    errors: list[FieldError] = []
    for index, term in enumerate(terms):
        errors += node_selector_term_errors(term or {}, f"{path}.nodeSelectorTerms[{index}]")
    return errors


def node_selector_term_errors(term: Object, path: str, *, check_values: bool = True) -> list[FieldError]:
    """The errors of a NodeSelectorTerm; in a preference the values are not checked."""
    errors: list[FieldError] = []
    for number, expression in enumerate(term.get("matchExpressions") or []):
        here = f"{path}.matchExpressions[{number}]"
        errors += _expression_errors(expression or {}, here, check_values=check_values)
    for number, expression in enumerate(term.get("matchFields") or []):
        errors += _field_errors(expression or {}, f"{path}.matchFields[{number}]")
    return errors


def node_name_errors(name: str, path: str) -> list[FieldError]:
    """The errors of a node's name."""
    return all_invalid(path, name, dns_subdomain(name, "characters"))


def _expression_errors(expression: Object, path: str, *, check_values: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{path}.values", text))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{path}.values", text))
    else:
        errors.append(invalid(f"{path}.operator", operator, _NOT_OPERATOR))
    key = expression.get("key") or ""
    errors += all_invalid(f"{path}.key", key, label_key(key))
    for index, value in enumerate(values if check_values else []):
        errors += all_invalid(f"{path}.values[{index}]", value, label_value(value))
    return errors


def _field_errors(expression: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator not in ("In", "NotIn"):
        errors.append(invalid(f"{path}.operator", operator, _NOT_OPERATOR))
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", text))
    key = expression.get("key") or ""
    if key != "metadata.name":
        errors.append(invalid(f"{path}.key", key, "not a valid field selector key"))
        return errors
    for index, value in enumerate(values):
        errors += node_name_errors(value, f"{path}.values[{index}]")
    return errors
