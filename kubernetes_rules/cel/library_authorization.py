"""Functions on authorization checks (k8s.io/apiserver/pkg/cel/library/authz.go).

Only policies have an authorizer. Expressions of others can name these functions on dynamic values, so that
they are valid, and fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kubernetes_rules.cel.types import BOOL, STRING, CelError, Cost, Overload, Type, method
from kubernetes_rules.cel.values import OpaqueValue, string_units
from kubernetes_rules.validation.names import dns_label, dns_subdomain

AUTHORIZER = Type("kubernetes.authorization.Authorizer")
RESOURCE_CHECK = Type("kubernetes.authorization.ResourceCheck")
_PATH_CHECK = Type("kubernetes.authorization.PathCheck")
_GROUP_CHECK = Type("kubernetes.authorization.GroupCheck")
_DECISION = Type("kubernetes.authorization.Decision")
_CHECK_UNITS = 350_000
_BASE_UNITS, _REQUIREMENT_UNITS = 10, 50


@dataclass(frozen=True, slots=True)
class Check:
    """What someone would do: a verb on a resource, or on ``path`` if that is not empty.

    ``user`` has ``username``, ``groups``, ``uid`` and ``extra`` as in AdmissionReview.
    """

    user: Mapping[str, Any]
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    verb: str = ""


Authorize = Callable[[Check], tuple[bool, str]]
"""Says whether something is allowed, and the reason, which may be empty."""


@dataclass(frozen=True, slots=True, eq=False)
class _Asking(OpaqueValue):
    """A question that is not complete yet."""

    type: ClassVar[Type] = AUTHORIZER
    check: Check
    authorize: Authorize

    def equals(self, _: object) -> bool:
        """Kubernetes compares such values with an error."""
        raise CelError("no such overload")


class Authorizer(_Asking):
    """The value of ``authorizer``."""

    __slots__ = ()


class _PathCheck(_Asking):
    __slots__ = ()
    type = _PATH_CHECK


class _GroupCheck(_Asking):
    __slots__ = ()
    type = _GROUP_CHECK


class ResourceCheck(_Asking):
    """The value of ``authorizer.requestResource``, and of ``authorizer.group(...).resource(...)``."""

    __slots__ = ()
    type = RESOURCE_CHECK


@dataclass(frozen=True, slots=True, eq=False)
class _Decision(OpaqueValue):
    type: ClassVar[Type] = _DECISION
    allowed: bool
    reason: str

    def equals(self, _: object) -> bool:
        """Kubernetes compares such values with an error."""
        raise CelError("no such overload")


def _path(authorizer: Authorizer, path: str) -> _PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return _PathCheck(replace(authorizer.check, path=path), authorizer.authorize)


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if dns_subdomain(name):
        raise CelError("Invalid service account name")
    if dns_label(namespace):
        raise CelError("Invalid service account namespace")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    user = {"username": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
    return Authorizer(Check(user), authorizer.authorize)


def _group(authorizer: Authorizer, group: str) -> _GroupCheck:
    return _GroupCheck(replace(authorizer.check, group=group), authorizer.authorize)


def _resource(asking: _GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(replace(asking.check, resource=resource), asking.authorize)


def _set(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def call(asking: ResourceCheck, value: str) -> ResourceCheck:
        changed: dict[str, Any] = {field: value}
        return ResourceCheck(replace(asking.check, **changed), asking.authorize)

    return call


def _decided(asking: _Asking, verb: str) -> _Decision:
    return _Decision(*asking.authorize(replace(asking.check, verb=verb)))


def _check_cost(_: tuple[Any, ...], __: Any) -> int:
    return _CHECK_UNITS


def _selector_cost(arguments: tuple[Any, ...], _: Any) -> int:
    requirements = -(-len(arguments[1]) // 2) if isinstance(arguments[1], str) else 1
    return _BASE_UNITS + string_units(arguments[1]) + requirements * _REQUIREMENT_UNITS


_DECLARED: tuple[tuple[str, tuple[Type, ...], Type, Callable[..., Any], Cost | None], ...] = (
    ("path", (AUTHORIZER, STRING), _PATH_CHECK, _path, None),
    ("group", (AUTHORIZER, STRING), _GROUP_CHECK, _group, None),
    ("serviceAccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _service_account, None),
    ("resource", (_GROUP_CHECK, STRING), RESOURCE_CHECK, _resource, None),
    ("subresource", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _set("subresource"), None),
    ("namespace", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _set("namespace"), None),
    ("name", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, _set("name"), None),
    # What a request selects does not matter to RBAC.
    ("fieldSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, lambda asking, _: asking, _selector_cost),
    ("labelSelector", (RESOURCE_CHECK, STRING), RESOURCE_CHECK, lambda asking, _: asking, _selector_cost),
    ("check", (_PATH_CHECK, STRING), _DECISION, _decided, _check_cost),
    ("check", (RESOURCE_CHECK, STRING), _DECISION, _decided, _check_cost),
    ("errored", (_DECISION,), BOOL, lambda _: False, None),
    ("error", (_DECISION,), STRING, lambda _: "", None),
    ("allowed", (_DECISION,), BOOL, lambda decision: decision.allowed, None),
    ("reason", (_DECISION,), STRING, lambda decision: decision.reason, None),
)
OVERLOADS: tuple[Overload, ...] = tuple(
    method(name, parameters, result, call, cost) for name, parameters, result, call, cost in _DECLARED
)
