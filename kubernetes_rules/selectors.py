"""Evaluates selectors: NodeSelector of core/v1, node affinity, and LabelSelector of meta/v1.

Selectors are JSON as the API serves them. The rules for nodes come from
component-helpers/scheduling/corev1/nodeaffinity, those for labels from apimachinery's labels.Requirement and
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
    """A node selector is malformed; a retry helps only after the object that holds it was changed."""


@dataclass(frozen=True, slots=True)
class Node:
    """The name and labels of a node, which is all that a NodeSelector can compare."""

    name: str
    labels: Mapping[str, str]


def read_node(stored: Json) -> Node:
    """The node of an API object (core/v1 Node)."""
    metadata = stored.get("metadata") or {}
    return Node(metadata.get("name") or "", metadata.get("labels") or {})


def node_selector_matches(selector: Json, node: Node) -> bool:
    """Whether at least one term of a NodeSelector matches the node.

    Selectors of slices, devices and allocations are read this way. Raises NodeSelectorInvalid when any term
    is malformed. Go: nodeaffinity.NewNodeSelector.
    """
    terms = _node_terms(selector)
    for term in terms:
        error = _node_term_error(term)
        if error:
            raise NodeSelectorInvalid(error, "correct the object that holds it")
    return any(_node_term_matches(term, node) for term in terms)


def node_affinity_matches(selector: Json, node: Node) -> bool:
    """Whether a pod's required node affinity, a NodeSelector, matches the node.

    A malformed term matches no node. NodeSelectorInvalid is raised only if no other term matches.
    Go: nodeaffinity.NewLazyErrorNodeSelector.
    """
    first_error = None
    for term in _node_terms(selector):
        error = _node_term_error(term)
        if not error and _node_term_matches(term, node):
            return True
        first_error = first_error or error
    if first_error:
        raise NodeSelectorInvalid(first_error, "correct the pod")
    return False


def missing_node_label(wanted: Mapping[str, str], node: Node) -> tuple[str, str] | None:
    """The first label, by key, that a pod's ``nodeSelector`` wants and the node lacks; None if it has all.

    The answer is the key and the wanted value.
    """
    for key, value in sorted(wanted.items()):
        if node.labels.get(key) != value:
            return key, value
    return None


def has_what_pod_asks(node: Node, spec: Json) -> bool:
    """Whether a node matches the ``nodeSelector`` and the required node affinity of a pod's spec.

    A malformed affinity matches no node, as for the daemon set controller. Go: GetRequiredNodeAffinity in
    component-helpers/scheduling/corev1/nodeaffinity.
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if missing_node_label(spec.get("nodeSelector") or {}, node):
        return False
    try:
        return required is None or node_affinity_matches(required, node)
    except NodeSelectorInvalid:
        return False


def exclusion(spec: Json, node: Node) -> str:
    """What of a pod's spec keeps the pod from a node: its ``nodeSelector`` or its required node affinity.

    Empty if neither does; both must be well-formed.
    """
    missing = missing_node_label(spec.get("nodeSelector") or {}, node)
    if missing:
        return f"nodeSelector {missing[0]}={missing[1]}"
    if has_what_pod_asks(node, spec):
        return ""
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    parts = [
        [*(one.get("matchExpressions") or ()), *(one.get("matchFields") or ())]
        for one in _node_terms(required)
    ]
    texts = (label_selector_text({"matchExpressions": one}) for one in parts)
    return f"required node affinity {' or '.join(texts)}"


def label_requirement_holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a well-formed requirement: ``key``, ``operator`` (In, Exists, ...) and ``values``.

    Gt and Lt compare integers; a label that is not an integer meets neither.
    Go: labels.Requirement.Matches.
    """
    operator: str = requirement["operator"]
    values: Sequence[str] = requirement.get("values") or ()
    label = labels.get(requirement["key"])
    # An absent label meets NotIn too: Kubernetes reads "not one of these values", not "another value".
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


def _node_terms(selector: Json) -> list[Json]:
    """The terms with at least one requirement."""
    try:
        # NodeSelectorTerm, core/v1: "A null or empty node selector term matches no objects."
        listed = selector.get("nodeSelectorTerms") or ()
        return [term for term in listed if term.get("matchExpressions") or term.get("matchFields")]
    except (TypeError, AttributeError) as error:
        raise NodeSelectorInvalid(f"a node selector is malformed: {error}", "correct it") from error


def _node_term_error(term: Json) -> str | None:
    """What is wrong with a term, None if it is well-formed."""
    try:
        for requirement in term.get("matchExpressions") or ():
            error = _requirement_error(
                requirement.get("key") or "", requirement.get("operator"), requirement.get("values") or ()
            )
            if error:
                return f"a node selector is malformed: {error}"
        for one in term.get("matchFields") or ():
            if one.get("operator") not in ("In", "NotIn") or len(one.get("values") or ()) != 1:
                return (
                    f"a node selector compares the field {one.get('key')!r} otherwise than with In"
                    " or NotIn and one value"
                )
    except (TypeError, AttributeError) as failure:
        return f"a node selector is malformed: {failure}"
    return None


def _requirement_error(key: str, operator: Any, values: Sequence[str]) -> str | None:
    """What is wrong with a requirement on labels, None if it is well-formed (Go: labels.NewRequirement)."""
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


def _node_term_matches(term: Json, node: Node) -> bool:
    if not all(label_requirement_holds(one, node.labels) for one in term.get("matchExpressions") or ()):
        return False
    # Go compares fields only if the node has any; its one field is its name.
    if not node.name:
        return True
    fields = {"metadata.name": node.name}
    return all(
        (fields.get(one.get("key") or "", "") == one["values"][0]) is (one["operator"] == "In")
        for one in term.get("matchFields") or ()
    )


def label_selector_matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a well-formed label selector selects these labels; an empty one selects everything."""
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(
        label_requirement_holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def label_selector_text(selector: Json | None) -> str:
    """A well-formed label selector as apimachinery prints it: ``a=b,c in (d,e),!f,g>1``; sorted by key."""
    if selector is None:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        key, values = one["key"], ",".join(sorted(one.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})"}
        texts |= {"Gt": f"{key}>{values}", "Lt": f"{key}<{values}"}
        terms.append((key, {**texts, "Exists": key, "DoesNotExist": f"!{key}"}[one["operator"]]))
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def label_selector_errors(selector: Any, path: str) -> list[str]:
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
