"""Which objects a ResourceQuota with scopes counts: the pods of some priority classes.

Go: pkg/quota/v1/evaluator/core/pods.go, podMatchesScopeFunc. Scopes other than PriorityClass are not decided
here: such a quota counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

PRIORITY_CLASS = "PriorityClass"


def counts(quota: Json, plural: str, item: Json) -> bool:
    """Whether an object of the resource ``plural`` counts for a ResourceQuota of its namespace."""
    spec = quota.get("spec") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    expressions = [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *selector,
    ]
    if not expressions:
        return True
    if plural != "pods" or any(one["scopeName"] != PRIORITY_CLASS for one in expressions):
        return False
    return all(_matches(one, (item.get("spec") or {}).get("priorityClassName") or "") for one in expressions)


def _matches(expression: Json, priority_class: str) -> bool:
    """Whether one expression holds for the priority class of a pod, empty for none."""
    among = priority_class in (expression.get("values") or ())
    match expression["operator"]:
        case "In":
            return among
        case "NotIn":
            return not among
        case "Exists":
            return bool(priority_class)
        case "DoesNotExist":
            return not priority_class
        case other:
            raise ValueError(f"{other} is no operator of a scope selector")
