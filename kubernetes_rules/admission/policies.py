"""Evaluates ValidatingAdmissionPolicies (apiserver/pkg/admission/plugin/policy/validating)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubernetes_rules.admission.conditions import ConditionsFailed, compile_conditions, conditions_match
from kubernetes_rules.admission.expressions import (
    POLICY_COST,
    Compiled,
    Evaluated,
    Inputs,
    OutOfBudget,
    Scope,
    evaluate,
)
from kubernetes_rules.admission.writes import (
    NamespaceMissing,
    NamespaceOf,
    Object,
    Version,
    Write,
    resources_match,
)
from kubernetes_rules.cel.library_authorization import Authorize
from kubernetes_rules.cel.types import BOOL, NULL, STRING
from kubernetes_rules.selectors import label_selector_matches

_LONGEST_MESSAGE = 5 * 1024
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A policy with its compiled expressions; ``messages`` has None for validations without one."""

    name: str
    spec: Mapping[str, Any]
    scope: Scope
    conditions: Sequence[Compiled]
    validations: Sequence[Compiled]
    messages: Sequence[Compiled | None]
    annotations: Sequence[Compiled]

    @property
    def ignores_failures(self) -> bool:
        """Whether an expression that cannot be evaluated lets the write pass."""
        return self.spec.get("failurePolicy") == "Ignore"


def compile_policy(policy: Object) -> CompiledPolicy:
    """Compile a stored policy; errors of expressions are kept and count when they are evaluated."""
    spec = policy.get("spec") or {}
    scope = Scope(bool(spec.get("paramKind")))
    for variable in spec.get("variables") or ():
        scope.add_variable(variable["name"], variable["expression"])
    texts = scope.without_authorizer()
    validations = spec.get("validations") or ()
    return CompiledPolicy(
        policy["metadata"]["name"],
        spec,
        scope,
        compile_conditions(spec.get("matchConditions") or (), scope),
        [scope.compile(one["expression"], (BOOL,)) for one in validations],
        [
            texts.compile(one["messageExpression"], (STRING,)) if one.get("messageExpression") else None
            for one in validations
        ],
        [scope.compile(one["valueExpression"], (STRING, NULL)) for one in spec.get("auditAnnotations") or ()],
    )


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a policy denies a write: the text, the HTTP status and the reason of the answer."""

    message: str
    code: int
    reason: str


@dataclass(slots=True)
class Verdict:
    """What policies make of a write: the first denial, warnings, and annotations for the audit log."""

    denial: Denial | None = None
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


ParamsOf = Callable[[str, str], tuple[bool, Sequence[Object]] | None]
"""Finds the objects of an ``apiVersion`` and a kind: whether they are in namespaces, and all of them.

None for a kind that is not served.
"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What policies can look up: namespaces, parameters, and what users may do."""

    namespace_of: NamespaceOf
    params_of: ParamsOf
    authorize: Authorize


class _Misconfigured(Exception):
    """A policy or a binding cannot be applied."""


def judge(
    write: Write,
    policies: Sequence[tuple[CompiledPolicy, Sequence[Object]]],
    surroundings: Surroundings,
) -> Verdict:
    """The verdict of policies, each with its bindings."""
    verdict = Verdict()
    for policy, bindings in policies:
        try:
            version = _matching(policy.spec.get("matchConstraints") or {}, write, surroundings)
            if version is not None:
                _check_param_kind(policy, surroundings)
        except _Misconfigured as error:
            _deny(verdict, policy, None, f"failed to configure policy: {error}")
            continue
        if version is None or not bindings:
            continue
        for binding in bindings:
            _apply(verdict, policy, binding, write, version, surroundings)
    return verdict


def _matching(criteria: Mapping[str, Any], write: Write, surroundings: Surroundings) -> Version | None:
    try:
        return resources_match(criteria, write, surroundings.namespace_of)
    except NamespaceMissing as error:
        raise _Misconfigured(str(error)) from error


def _apply(
    verdict: Verdict,
    policy: CompiledPolicy,
    binding: Object,
    write: Write,
    version: Version,
    surroundings: Surroundings,
) -> None:
    spec = binding.get("spec") or {}
    try:
        criteria = spec.get("matchResources")
        if criteria is not None and _matching(criteria, write, surroundings) is None:
            return
        params = _params(policy, spec.get("paramRef"), write, surroundings)
    except _Misconfigured as error:
        _deny(verdict, policy, binding, f"failed to configure binding: {error}")
        return
    is_namespace = (write.group, write.kind) == ("", "Namespace")
    namespace = None if is_namespace or not write.namespace else surroundings.namespace_of(write.namespace)
    kind = {"group": version[0], "version": version[1], "kind": write.kind}
    for param in params:
        inputs = Inputs(write, namespace, param, surroundings.authorize)
        values = inputs.values(kind, version)
        failed: list[str] = []
        for message, reason in _decisions(verdict, policy, values, failed):
            _carry_out(verdict, policy, binding, message, reason)
        for message in failed:
            _deny(verdict, policy, binding, message)


def _carry_out(verdict: Verdict, policy: CompiledPolicy, binding: Object, message: str, reason: str) -> None:
    name = binding["metadata"]["name"]
    for action in (binding.get("spec") or {}).get("validationActions") or ():
        if action == "Deny" and verdict.denial is None:
            verdict.denial = _denial(policy, name, message, reason)
        elif action == "Warn":
            text = f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{name}'"
            verdict.warnings.append(f"{text}: {message}")


def _deny(verdict: Verdict, policy: CompiledPolicy, binding: Object | None, message: str) -> None:
    """Deny a write because of a wrong configuration, whatever the actions of the binding."""
    if verdict.denial is None and not policy.ignores_failures:
        verdict.denial = _denial(
            policy, None if binding is None else binding["metadata"]["name"], message, ""
        )


def _denial(policy: CompiledPolicy, binding: str | None, message: str, reason: str) -> Denial:
    by = "" if binding is None else f" with binding '{binding}'"
    text = f"ValidatingAdmissionPolicy '{policy.name}'{by} denied request: {message}"
    return Denial(text, _CODES.get(reason, 422), reason or "Invalid")


def _check_param_kind(policy: CompiledPolicy, surroundings: Surroundings) -> None:
    kind = policy.spec.get("paramKind")
    if kind and surroundings.params_of(kind["apiVersion"], kind["kind"]) is None:
        group, _, version = kind["apiVersion"].rpartition("/")
        name = f"{group}/{version}, Kind={kind['kind']}"
        raise _Misconfigured(f"failed to find resource referenced by paramKind: '{name}'")


def _params(
    policy: CompiledPolicy, ref: Mapping[str, Any] | None, write: Write, surroundings: Surroundings
) -> Sequence[Object | None]:
    """The parameters to evaluate a policy with, each in turn (generic.CollectParams)."""
    kind = policy.spec.get("paramKind")
    if not kind or not ref:
        return [None]
    found = surroundings.params_of(kind["apiVersion"], kind["kind"])
    # That the kind is served was checked with the policy.
    in_namespaces, items = found or (False, ())
    if in_namespaces:
        namespace = ref.get("namespace") or write.namespace
        if not namespace:
            raise _Misconfigured(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        items = [item for item in items if item["metadata"].get("namespace") == namespace]
    elif ref.get("namespace"):
        raise _Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    if ref.get("name"):
        chosen = [item for item in items if item["metadata"]["name"] == ref["name"]]
    else:
        selector = ref.get("selector") or {}
        chosen = [
            item for item in items if label_selector_matches(selector, item["metadata"].get("labels") or {})
        ]
    if not chosen and ref.get("parameterNotFoundAction") == "Deny":
        raise _Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return chosen


def _decisions(
    verdict: Verdict, policy: CompiledPolicy, values: list[Any], failed: list[str]
) -> list[tuple[str, str]]:
    """The message and the reason of each validation that is not met.

    The errors of annotations for the audit log are added to ``failed``.
    """
    try:
        matches = conditions_match(
            policy.conditions, values, policy.spec.get("failurePolicy"), policy.scope.variables
        )
        if not matches:
            return []
        results, left = evaluate(policy.validations, policy.scope.variables, values, POLICY_COST)
    except (ConditionsFailed, OutOfBudget) as error:
        return _failure(policy, error)
    shown: Sequence[Evaluated | None] = [None] * len(results)
    problem = ""
    try:
        shown, _ = evaluate(policy.messages, policy.scope.variables, values, left)
    except OutOfBudget as error:
        problem = f"failed messageExpression: {error}"
    try:
        failed += _annotated(verdict, policy, values)
    except OutOfBudget as error:
        return _failure(policy, error)
    return list(_decided(policy, results, shown, problem))


def _failure(policy: CompiledPolicy, error: Exception) -> list[tuple[str, str]]:
    return [] if policy.ignores_failures else [(str(error), "")]


def _decided(
    policy: CompiledPolicy,
    results: Sequence[Evaluated | None],
    shown: Sequence[Evaluated | None],
    problem: str,
) -> Iterator[tuple[str, str]]:
    for validation, result, message in zip(policy.spec.get("validations") or (), results, shown, strict=True):
        if result is None:
            continue
        if result.error or problem:
            if not policy.ignores_failures:
                yield result.error or problem, ""
        elif result.value is not True:
            yield _message(validation, message), validation.get("reason") or "Invalid"


def _message(validation: Mapping[str, Any], shown: Evaluated | None) -> str:
    text = shown.value.strip() if shown is not None and isinstance(shown.value, str) else ""
    if text and "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE:
        return text
    own: str = (validation.get("message") or "").strip()
    return own or f"failed expression: {validation['expression'].strip()}"


def _annotated(verdict: Verdict, policy: CompiledPolicy, values: list[Any]) -> Iterator[str]:
    """Note the annotations for the audit log; yields the errors of those that fail."""
    results, _ = evaluate(policy.annotations, policy.scope.variables, values, POLICY_COST)
    for annotation, result in zip(policy.spec.get("auditAnnotations") or (), results, strict=True):
        if result is None:
            continue
        if result.error:
            if not policy.ignores_failures:
                yield result.error
        elif isinstance(result.value, str) and result.value.strip():
            verdict.annotations[f"{policy.name}/{annotation['key']}"] = result.value.strip()
