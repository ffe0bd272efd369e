"""All functions that a selector can call, by name."""

from __future__ import annotations

from typing import Any, NoReturn

from kubernetes_rules.cel import (
    conversions,
    library_format,
    library_ip,
    library_lists,
    library_quantity,
    library_regex,
    library_semver,
    library_strings,
    library_urls,
    operators,
    optionals,
    times,
)
from kubernetes_rules.cel.types import BOOL, STRING, CelError, Overload, Type, method

_AUTHORIZER = Type("kubernetes.authorization.Authorizer")
_PATH_CHECK = Type("kubernetes.authorization.PathCheck")
_GROUP_CHECK = Type("kubernetes.authorization.GroupCheck")
_RESOURCE_CHECK = Type("kubernetes.authorization.ResourceCheck")
_DECISION = Type("kubernetes.authorization.Decision")


def _never(*_: Any) -> NoReturn:
    raise CelError("no such overload")


_AUTHORIZATION = (
    ("path", (_AUTHORIZER, STRING), _PATH_CHECK),
    ("group", (_AUTHORIZER, STRING), _GROUP_CHECK),
    ("serviceAccount", (_AUTHORIZER, STRING, STRING), _AUTHORIZER),
    ("resource", (_GROUP_CHECK, STRING), _RESOURCE_CHECK),
    ("subresource", (_RESOURCE_CHECK, STRING), _RESOURCE_CHECK),
    ("namespace", (_RESOURCE_CHECK, STRING), _RESOURCE_CHECK),
    ("name", (_RESOURCE_CHECK, STRING), _RESOURCE_CHECK),
    ("fieldSelector", (_RESOURCE_CHECK, STRING), _RESOURCE_CHECK),
    ("labelSelector", (_RESOURCE_CHECK, STRING), _RESOURCE_CHECK),
    ("check", (_PATH_CHECK, STRING), _DECISION),
    ("check", (_RESOURCE_CHECK, STRING), _DECISION),
    ("errored", (_DECISION,), BOOL),
    ("error", (_DECISION,), STRING),
    ("allowed", (_DECISION,), BOOL),
    ("reason", (_DECISION,), STRING),
)

_AUTHORIZATION_OVERLOADS = tuple(
    method(name, parameters, result, _never) for name, parameters, result in _AUTHORIZATION
)
"""Functions on authorization checks (k8s.io/apiserver/pkg/cel/library/authz.go), which always fail.

No variable of a selector holds an authorizer, so these never get a value that they take. They are here
because an expression on dynamic values that names them is valid.
"""

_CORE_OVERLOADS = (*operators.OVERLOADS, *conversions.OVERLOADS, *times.OVERLOADS, *optionals.OVERLOADS)
_OVERLOADS = (
    *_CORE_OVERLOADS, *library_urls.OVERLOADS, *library_regex.OVERLOADS, *_AUTHORIZATION_OVERLOADS,
    *library_quantity.OVERLOADS, *library_strings.OVERLOADS, *library_ip.OVERLOADS,
    *library_format.OVERLOADS, *library_semver.OVERLOADS, *library_lists.OVERLOADS,
)  # fmt: skip
"""In the order of k8s.io/apiserver/pkg/cel/environment: the first signature that fits counts."""


def _by_name() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, tuple[Overload, ...]] = {}
    for overload in _OVERLOADS:
        found[overload.name] = (*found.get(overload.name, ()), overload)
    return found


FUNCTIONS = _by_name()
NEWEST = frozenset(("includes",))
"""The functions of Kubernetes 1.37: an older API server beside it would not know them."""
COUNTED_BY_SIGNATURE = frozenset(
    overload.name for overload in (*_CORE_OVERLOADS, *library_lists.EXTENSION_OVERLOADS)
)
"""The functions whose cost depends on the signature; that of Kubernetes' own depends only on the name."""
