"""Expressions of admission: their variables, their compilation and their evaluation within a budget.

Source: k8s.io/apiserver/pkg/admission/plugin/cel (compile.go, activation.go, composition.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.admission.writes import Object, Write
from kubernetes_rules.cel import types
from kubernetes_rules.cel.checker import Objects
from kubernetes_rules.cel.issues import ExpressionInvalid
from kubernetes_rules.cel.library_authorization import (
    AUTHORIZER,
    RESOURCE_CHECK,
    Authorize,
    Authorizer,
    Check,
    ResourceCheck,
)
from kubernetes_rules.cel.object_values import value_of
from kubernetes_rules.cel.program import NoValue, Program, check_expression
from kubernetes_rules.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, CelError, Type, list_of, map_of

POLICY_COST, CONDITIONS_COST = 10_000_000, 2_500_000
"""The units that all expressions of a policy, and all match conditions together, may cost."""
_TEXTS = map_of(STRING, STRING)
_VARIABLES = "kubernetes.variables"
_KIND, _RESOURCE = Type("kubernetes.GroupVersionKind"), Type("kubernetes.GroupVersionResource")
_OBJECTS: Objects = {
    _KIND.name: {"group": STRING, "version": STRING, "kind": STRING},
    _RESOURCE.name: {"group": STRING, "version": STRING, "resource": STRING},
    "kubernetes.UserInfo": {
        "username": STRING, "uid": STRING, "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    "kubernetes.AdmissionRequest": {
        "kind": _KIND, "resource": _RESOURCE, "subResource": STRING, "requestKind": _KIND,
        "requestResource": _RESOURCE, "requestSubResource": STRING, "name": STRING, "namespace": STRING,
        "operation": STRING, "userInfo": Type("kubernetes.UserInfo"), "dryRun": BOOL, "options": DYN,
    },
    "kubernetes.NamespaceSpec": {"finalizers": list_of(STRING)},
    "kubernetes.NamespaceCondition": {
        "status": STRING, "type": STRING, "lastTransitionTime": TIMESTAMP, "message": STRING,
        "reason": STRING,
    },
    "kubernetes.NamespaceStatus": {
        "conditions": list_of(Type("kubernetes.NamespaceCondition")), "phase": STRING,
    },
    "kubernetes.NamespaceMetadata": {
        "name": STRING, "generateName": STRING, "namespace": STRING, "labels": _TEXTS, "annotations": _TEXTS,
        "UID": STRING, "creationTimestamp": TIMESTAMP, "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP, "generation": INT, "resourceVersion": STRING,
        "finalizers": list_of(STRING),
    },
    "kubernetes.Namespace": {
        "metadata": Type("kubernetes.NamespaceMetadata"), "spec": Type("kubernetes.NamespaceSpec"),
        "status": Type("kubernetes.NamespaceStatus"),
    },
}  # fmt: skip
_NAMESPACE_METADATA = frozenset((
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
))  # fmt: skip
_NAMES = (
    "object", "oldObject", "namespaceObject", "request", "params", "authorizer", "authorizer.requestResource",
    "variables",
)  # fmt: skip
"""The variables in the order of their values."""
_OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudget(Exception):
    """The expressions together cost too much."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression of a policy; ``error`` says why it has no program."""

    expression: str
    result: Type = DYN
    program: Program | None = None
    error: str = ""


@dataclass(slots=True)
class Scope:
    """What the expressions of one policy may use. ``composes``: they may use ``variables``."""

    has_params: bool
    has_authorizer: bool = True
    composes: bool = True
    new: bool = False
    variables: dict[str, Compiled] = field(default_factory=dict)

    def compile(self, expression: str, wanted: Sequence[Type] = ()) -> Compiled:
        """Compile an expression whose result has one of the types, any type if there are none."""
        fields = {name: _declared(variable) for name, variable in self.variables.items()}
        objects = {**_OBJECTS, _VARIABLES: fields}
        try:
            checked = check_expression(expression, self._types(), objects, new=self.new)
        except ExpressionInvalid as error:
            return Compiled(expression, error=f"compilation failed: {error.shown(expression)}")
        if wanted and checked.result not in wanted:
            names = " ".join(map(str, wanted))
            one_of = f"one of [{names}]" if len(wanted) > 1 else names
            return Compiled(expression, error=f"must evaluate to {one_of} but got {checked.result}")
        try:
            return Compiled(expression, checked.result, checked.program())
        except ExpressionInvalid as error:
            return Compiled(expression, error=f"program instantiation failed: {error.issues[0][1]}")

    def add_variable(self, name: str, expression: str) -> Compiled:
        """Compile a variable, which later expressions may use."""
        self.variables[name] = self.compile(expression)
        return self.variables[name]

    def without_authorizer(self) -> Scope:
        """The same for expressions of messages."""
        return Scope(self.has_params, False, self.composes, self.new, self.variables)  # noqa: FBT003 - a field

    def _types(self) -> dict[str, Type]:
        request, namespace = Type("kubernetes.AdmissionRequest"), Type("kubernetes.Namespace")
        found = {"object": DYN, "oldObject": DYN, "namespaceObject": namespace, "request": request}
        more = {
            "params": DYN if self.has_params else None,
            "authorizer": AUTHORIZER if self.has_authorizer else None,
            "authorizer.requestResource": RESOURCE_CHECK if self.has_authorizer else None,
            "variables": Type(_VARIABLES) if self.composes else None,
        }
        # Every name keeps its place among the values; one that may not be used cannot be written.
        return found | {name if kind else f"#{name}": kind or DYN for name, kind in more.items()}


def _declared(variable: Compiled) -> Type:
    """The type of a variable for other expressions; objects become dyn."""
    return _converted(variable.result) if variable.program is not None else DYN


def _converted(kind: Type) -> Type:
    if kind.name in ("list", "map"):
        return Type(kind.name, tuple(map(_converted, kind.parameters)))
    plain = (BOOL, types.BYTES, types.DOUBLE, types.DURATION, INT, types.NULL, STRING, TIMESTAMP, types.UINT)
    return kind if kind in plain else DYN


@dataclass(frozen=True, slots=True)
class Inputs:
    """The values of the variables for one write. ``namespace`` and ``params`` may be absent."""

    write: Write
    namespace: Object | None = None
    params: Object | None = None
    authorize: Authorize | None = None

    def values(self, kind: Mapping[str, str], version: tuple[str, str]) -> list[Any]:
        """The values in the order of ``Scope``, without ``variables``."""
        write = self.write
        read = _plain if write.is_custom else value_of
        namespace = None if self.namespace is None else value_of(_shown_namespace(self.namespace))
        check = Check(write.user)
        authorizer = resource_check = None
        if self.authorize is not None:
            authorizer = Authorizer(check, self.authorize)
            place = Check(
                write.user, "", write.group, write.resource, write.subresource, write.namespace, write.name
            )
            resource_check = ResourceCheck(place, self.authorize)
        request = value_of(_request(write, kind, version))
        return [
            None if write.item is None else read(write.item),
            None if write.old is None else read(write.old),
            namespace,
            request,
            None if self.params is None else value_of(self.params),
            authorizer,
            resource_check,
        ]


def _plain(raw: Any) -> Any:
    """The value of a custom resource, which compares as lists and maps of expressions do."""
    if isinstance(raw, dict):
        return {key: _plain(value) for key, value in raw.items()}
    return tuple(map(_plain, raw)) if isinstance(raw, list) else raw


def _shown_namespace(namespace: Object) -> Object:
    metadata = {key: value for key, value in namespace["metadata"].items() if key in _NAMESPACE_METADATA}
    return {
        "metadata": metadata,
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }


def _request(write: Write, kind: Mapping[str, str], version: tuple[str, str]) -> Object:
    """The AdmissionRequest, without what is empty in it."""
    user = {key: write.user[key] for key in ("username", "uid", "groups", "extra") if write.user.get(key)}
    resource = {"group": version[0], "version": version[1], "resource": write.resource}
    optional = {
        "subResource": write.subresource,
        "requestSubResource": write.subresource,
        "name": write.name,
        "namespace": write.namespace,
    }
    return {
        "uid": "",
        "kind": {"group": kind["group"], "version": kind["version"], "kind": kind["kind"]},
        "resource": resource,
        "requestKind": {"group": write.group, "version": write.version, "kind": write.kind},
        "requestResource": {"group": write.group, "version": write.version, "resource": write.resource},
        **{key: value for key, value in optional.items() if value},
        "operation": write.operation,
        "userInfo": user,
        "object": None,
        "oldObject": None,
        "dryRun": write.is_dry,
        "options": write.options,
    }


class _Variables(Mapping[str, Any]):
    """The value of ``variables``: each is computed when it is first read, and its cost noted."""

    def __init__(self, compiled: Mapping[str, Compiled], values: list[Any]) -> None:
        self._compiled = compiled
        self._values = values
        self._known: dict[str, Any] = {}
        self.cost = 0

    def __getitem__(self, name: str) -> Any:
        if name not in self._compiled:
            raise KeyError(name)
        if name not in self._known:
            self._known[name] = self._computed(name)
        found = self._known[name]
        if isinstance(found, CelError):
            raise found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._compiled)

    def __len__(self) -> int:
        return len(self._compiled)

    def __hash__(self) -> int:
        return id(self)

    def _computed(self, name: str) -> Any:
        compiled = self._compiled[name]
        if compiled.program is None:
            return CelError(f'composited variable "{name}" fails to compile: {compiled.error}')
        try:
            evaluation = compiled.program.run_on([*self._values, self])
        except NoValue as error:
            self.cost += error.cost
            return CelError(f'composited variable "{name}" fails to evaluate: {error_text(error)}')
        self.cost += evaluation.cost
        return evaluation.value


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The value of an expression, or why there is none."""

    value: Any = None
    error: str = ""


def error_text(error: NoValue) -> str:
    """The text of a failed evaluation."""
    return "operation cancelled: actual cost limit exceeded" if error.too_costly else str(error)


def evaluate(
    expressions: Sequence[Compiled | None], variables: Mapping[str, Compiled], values: list[Any], budget: int
) -> tuple[list[Evaluated | None], int]:
    """The value of each expression, and the units that are left. Raises OutOfBudget."""
    lazy = _Variables(variables, values)
    found: list[Evaluated | None] = []
    for compiled in expressions:
        if compiled is None:
            found.append(None)
            continue
        if compiled.program is None:
            found.append(Evaluated(error=f"compilation error: {compiled.error}"))
            continue
        error = ""
        value, lazy.cost = None, 0
        try:
            evaluation = compiled.program.run_on([*values, lazy])
            cost, value = evaluation.cost, evaluation.value
        except NoValue as failure:
            cost = failure.cost
            error = f"expression '{compiled.expression}' resulted in error: {error_text(failure)}"
        budget -= cost + lazy.cost
        if budget < 0:
            raise OutOfBudget(_OUT_OF_BUDGET)
        found.append(Evaluated(value, error))
    return found, budget
