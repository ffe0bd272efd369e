"""Functions over authorization checks (k8s.io/apiserver/pkg/cel/library/authz.go), without an effect.

A selector has no variable that holds an authorizer, so none of these can get the value it wants; they are
here because an expression over dynamic values that names them is valid.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kubernetes_rules.cel.library_values import method
from kubernetes_rules.cel.types import BOOL, STRING, CelError, Type

AUTHORIZER = Type("kubernetes.authorization.Authorizer")
PATH_CHECK = Type("kubernetes.authorization.PathCheck")
GROUP_CHECK = Type("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type("kubernetes.authorization.ResourceCheck")
DECISION = Type("kubernetes.authorization.Decision")


def _never(*_: Any) -> NoReturn:
    raise CelError("no such overload")


_SIGNATURES = (
    ("path", (AUTHORIZER, STRING), PATH_CHECK),
    ("group", (AUTHORIZER, STRING), GROUP_CHECK),
    ("serviceAccount", (AUTHORIZER, STRING, STRING), AUTHORIZER),
    ("resource", (GROUP_CHECK, STRING), RESOURCE_CHECK),
    ("subresource", (RESOURCE_CHECK, STRING), RESOURCE_CHECK),
    ("namespace", (RESOURCE_CHECK, STRING), RESOURCE_CHECK),
    ("name", (RESOURCE_CHECK, STRING), RESOURCE_CHECK),
    ("fieldSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK),
    ("labelSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK),
    ("check", (PATH_CHECK, STRING), DECISION),
    ("check", (RESOURCE_CHECK, STRING), DECISION),
    ("errored", (DECISION,), BOOL),
    ("error", (DECISION,), STRING),
    ("allowed", (DECISION,), BOOL),
    ("reason", (DECISION,), STRING),
)

OVERLOADS = tuple(method(name, parameters, result, _never) for name, parameters, result in _SIGNATURES)
