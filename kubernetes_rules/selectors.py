"""Decides what a selector selects: NodeSelector of core/v1, node affinity, and LabelSelector of meta/v1.

Selectors are JSON as the API serves them. The rules for nodes are those of Kubernetes'
component-helpers/scheduling/corev1/nodeaffinity, those for labels of apimachinery's labels.Requirement and
metav1.LabelSelectorAsSelector.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubernetes_rules.errors import RuleError
from kubernetes_rules.validation.names import label_key, label_value

Json = Mapping[str, Any]

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)

_FIELDS = ("matchLabels", "matchExpressions")
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")


class NodeSelectorInvalid(RuleError):
    """A node selector cannot be read; a retry helps once the object that holds it is another."""


@dataclass(frozen=True, slots=True)
class Node:
    """What selectors look at."""

    name: str
    labels: Mapping[str, str]


def read_node(stored: Json) -> Node:
    """The node of an API object (core/v1 Node)."""
    metadata = stored.get("metadata") or {}
    return Node(metadata.get("name") or "", metadata.get("labels") or {})


def selector_matches(selector: Json, node: Node) -> bool:
    """Whether one of a NodeSelector's terms takes in the node; a term that asks for nothing takes in none.

    So are selectors of slices, devices and allocations read. Raises NodeSelectorInvalid when any term is
    malformed. Go: nodeaffinity.NewNodeSelector.
    """
    terms = _terms(selector)
    for term in terms:
        wrong = _wrong_term(term)
        if wrong:
            raise NodeSelectorInvalid(wrong, "correct the object that holds it")
    return any(_matches(term, node) for term in terms)


def affinity_matches(selector: Json, node: Node) -> bool:
    """Whether a pod's required node affinity, a NodeSelector, takes in the node.

    A malformed term takes in none; NodeSelectorInvalid is raised only when no other term takes in the node.
    Go: nodeaffinity.NewLazyErrorNodeSelector.
    """
    found = None
    for term in _terms(selector):
        wrong = _wrong_term(term)
        if not wrong and _matches(term, node):
            return True
        found = found or wrong
    if found:
        raise NodeSelectorInvalid(found, "correct the pod")
    return False


def missing_label(wanted: Mapping[str, str], node: Node) -> tuple[str, str] | None:
    """The first label that a pod's ``nodeSelector`` wants and the node has not, None if it has all of them.

    The answer is a key and the wanted value; keys are looked at in their order.
    """
    for key, value in sorted(wanted.items()):
        if node.labels.get(key) != value:
            return key, value
    return None


def requirement_holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a requirement: ``key``, ``operator`` (In, NotIn, Exists, ...) and ``values``.

    The requirement is well-formed. A label that is absent meets NotIn and DoesNotExist. Gt and Lt compare
    integers, which a label that is none never meets. Go: labels.Requirement.Matches.
    """
    operator: str = requirement["operator"]
    values: Sequence[str] = requirement.get("values") or ()
    label = labels.get(requirement["key"])
    if operator in ("NotIn", "DoesNotExist"):
        return label is None or (operator == "NotIn" and label not in values)
    if label is None:
        return False
    if operator == "Exists":
        return True
    if operator == "In":
        return label in values
    number, bound = _int64(label), _int64(values[0])
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _terms(selector: Json) -> list[Json]:
    """The terms that ask for something."""
    try:
        listed = selector.get("nodeSelectorTerms") or ()
        return [term for term in listed if term.get("matchExpressions") or term.get("matchFields")]
    except (TypeError, AttributeError) as error:
        raise NodeSelectorInvalid(f"a node selector is malformed: {error}", "correct it") from error


def _wrong_term(term: Json) -> str | None:
    """What is wrong with a term, None if nothing is."""
    try:
        for requirement in term.get("matchExpressions") or ():
            wrong = _wrong_expression(
                requirement.get("key") or "", requirement.get("operator"), requirement.get("values") or ()
            )
            if wrong:
                return f"a node selector is malformed: {wrong}"
        for one in term.get("matchFields") or ():
            if one.get("operator") not in ("In", "NotIn") or len(one.get("values") or ()) != 1:
                return (
                    f"a node selector compares the field {one.get('key')!r} otherwise than with In"
                    " or NotIn and one value"
                )
    except (TypeError, AttributeError) as error:
        return f"a node selector is malformed: {error}"
    return None


def _wrong_expression(key: str, operator: Any, values: Sequence[str]) -> str | None:
    """What is wrong in a requirement on labels, None if nothing is (Go: labels.NewRequirement)."""
    if not _is_label_key(key):
        return f"{key!r} is no label key"
    if operator in ("In", "NotIn"):
        if not values:
            return f"{operator} needs values"
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            return f"{operator} takes no values"
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or _int64(values[0]) is None:
            return f"{operator} needs one integer"
    else:
        return f"{operator!r} is no operator"
    return next((f"{value!r} is no label value" for value in values if not _is_label_value(value)), None)


@lru_cache(maxsize=1024)
def _is_label_key(text: str) -> bool:
    return not label_key(text)


@lru_cache(maxsize=1024)
def _is_label_value(text: str) -> bool:
    return not label_value(text)


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _matches(term: Json, node: Node) -> bool:
    if not all(requirement_holds(one, node.labels) for one in term.get("matchExpressions") or ()):
        return False
    if not node.name:
        return True  # a node without any field is not asked for one
    fields = {"metadata.name": node.name}
    return all(
        (fields.get(one.get("key") or "", "") == one["values"][0]) is (one["operator"] == "In")
        for one in term.get("matchFields") or ()
    )


def selector_holds(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a well-formed label selector selects these labels; an empty one selects everything."""
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(requirement_holds(one, labels) for one in selector.get("matchExpressions") or ())


def selector_text(selector: Json | None) -> str:
    """A well-formed label selector as apimachinery prints it: ``a=b,c in (d,e),!f``; sorted by key."""
    if selector is None:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        key, values = one["key"], ",".join(sorted(one.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})"}
        terms.append((key, {**texts, "Exists": key, "DoesNotExist": f"!{key}"}[one["operator"]]))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def selector_errors(selector: Any, path: str) -> list[str]:
    """The errors of a label selector that may not be empty, each with the path of its field."""
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
