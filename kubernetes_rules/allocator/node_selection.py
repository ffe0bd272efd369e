"""Which nodes a slice or a device can be used from (NodeSelector of core/v1, and node names)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.published import Json, Selection

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_PREFIX = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """What selections look at."""

    name: str
    labels: Mapping[str, str]


def read_node(stored: Json) -> Node:
    """The node of an API object."""
    metadata = stored.get("metadata") or {}
    return Node(metadata.get("name") or "", metadata.get("labels") or {})


def selects(selection: Selection, node: Node) -> bool:
    """Whether the node is selected; a name counts before ``allNodes``, that before the selector.

    Raises AllocationFailed for a selector that is malformed.
    """
    if selection.node_name:
        return node.name == selection.node_name
    if selection.all_nodes:
        return True
    if selection.terms is None:
        return False
    try:
        terms = [term for term in selection.terms.get("nodeSelectorTerms") or () if _says_something(term)]
        for term in terms:
            _check(term)
    except (TypeError, AttributeError) as error:
        raise AllocationFailed(
            f"a node selector is malformed: {error}", "correct the ResourceSlice"
        ) from error
    return any(_matches(term, node) for term in terms)


def _says_something(term: Json) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _check(term: Json) -> None:
    for requirement in term.get("matchExpressions") or ():
        wrong = _wrong_expression(
            requirement.get("key") or "", requirement.get("operator"), requirement.get("values") or ()
        )
        if wrong:
            raise AllocationFailed(f"a node selector is malformed: {wrong}", "correct the ResourceSlice")
    for requirement in term.get("matchFields") or ():
        if requirement.get("operator") not in ("In", "NotIn") or len(requirement.get("values") or ()) != 1:
            raise AllocationFailed(
                f"a node selector compares the field {requirement.get('key')!r} otherwise than with In"
                " or NotIn and one value",
                "correct the ResourceSlice",
            )


def _wrong_expression(key: str, operator: Any, values: Sequence[str]) -> str | None:
    """What is wrong in a requirement on labels, None if nothing is."""
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
    wrong = [value for value in values if value and not _NAME.fullmatch(value)]
    return f"{wrong[0]!r} is no label value" if wrong else None


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return (not slash or _PREFIX.fullmatch(prefix) is not None) and _NAME.fullmatch(name) is not None


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 19:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _matches(term: Json, node: Node) -> bool:
    if not all(_expression_holds(one, node.labels) for one in term.get("matchExpressions") or ()):
        return False
    if not node.name:
        return True  # a node without any field is not asked for one
    fields = {"metadata.name": node.name}
    return all(
        (fields.get(one.get("key") or "", "") == one["values"][0]) is (one["operator"] == "In")
        for one in term.get("matchFields") or ()
    )


def _expression_holds(requirement: Json, labels: Mapping[str, str]) -> bool:
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
