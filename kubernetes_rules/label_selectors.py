"""Judges whether labels meet a LabelSelector of meta/v1, and whether the selector is one.

Go: apimachinery's metav1.LabelSelectorAsSelector and its validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes_rules.node_selectors import requirement_holds
from kubernetes_rules.validation.names import label_key, label_value

Json = Mapping[str, Any]

_FIELDS = ("matchLabels", "matchExpressions")
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")


def selector_holds(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all of a well-formed selector; one that asks for nothing takes in everything."""
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(requirement_holds(one, labels) for one in selector.get("matchExpressions") or ())


def selector_text(selector: Json | None) -> str:
    """A well-formed selector as apimachinery prints it: ``a=b,c in (d,e),!f``; sorted by key."""
    if selector is None:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        key, values = one["key"], ",".join(sorted(one.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})"}
        terms.append((key, {**texts, "Exists": key, "DoesNotExist": f"!{key}"}[one["operator"]]))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def selector_errors(selector: Any, path: str) -> list[str]:
    """What is wrong with a selector that has to ask for something, each with the path of its field."""
    if not isinstance(selector, dict) or not any(selector.get(field) for field in _FIELDS):
        return [f"{path}: must be a mapping with matchLabels, matchExpressions or both"]
    errors = [f"{path}.{key}: unknown field" for key in selector if key not in _FIELDS]
    equal, listed = (selector.get(field) for field in _FIELDS)
    if equal is not None and not isinstance(equal, dict):
        errors.append(f"{path}.matchLabels: must be a mapping from label to value")
    elif equal:
        errors += [error for key, value in equal.items() for error in _label_errors(key, value, path)]
    if listed is not None and not isinstance(listed, list):
        errors.append(f"{path}.matchExpressions: must be a list")
    elif listed:
        for index, one in enumerate(listed):
            errors += _expression_errors(one, f"{path}.matchExpressions[{index}]")
    return errors


def _label_errors(key: Any, value: Any, path: str) -> list[str]:
    errors = _wrong_key(key, f"{path}.matchLabels")
    if not _is_value(value):
        errors.append(
            f"{path}.matchLabels.{key}: must be a label's value, in quotes where YAML reads another"
        )
    return errors


def _expression_errors(one: Any, path: str) -> list[str]:
    if not isinstance(one, dict):
        return [f"{path}: must be a mapping with key, operator and, perhaps, values"]
    errors = [f"{path}.{key}: unknown field" for key in one if key not in ("key", "operator", "values")]
    errors += _wrong_key(one.get("key"), f"{path}.key")
    operator, values = one.get("operator"), one.get("values") or []
    if operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
        errors.append(f"{path}.operator: must be one of {', '.join((*_WITH_VALUES, *_WITHOUT_VALUES))}")
    elif not isinstance(values, list) or not all(map(_is_value, values)):
        errors.append(f"{path}.values: must be a list of labels' values, in quotes")
    elif bool(values) is (operator in _WITHOUT_VALUES):
        errors.append(f"{path}.values: {operator} {'takes none' if values else 'needs some'}")
    return errors


def _wrong_key(key: Any, path: str) -> list[str]:
    return [] if isinstance(key, str) and not label_key(key) else [f"{path}: {key!r} is no label key"]


def _is_value(value: Any) -> bool:
    return isinstance(value, str) and not label_value(value)
