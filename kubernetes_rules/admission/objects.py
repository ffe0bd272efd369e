"""What kube-apiserver refuses of a ValidatingAdmissionPolicy and its binding when they are written.

Source: k8s.io/kubernetes/pkg/apis/admissionregistration/validation. The objects have their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes_rules.admission.conditions import compile_errors, condition_errors
from kubernetes_rules.admission.expressions import Scope
from kubernetes_rules.cel.checker import RESERVED_WORDS
from kubernetes_rules.cel.types import BOOL, NULL, STRING, Type
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError, invalid, not_supported, required
from kubernetes_rules.validation.metadata import label_selector_errors

Object = dict[str, Any]
Json = Mapping[str, Any]

_FAILURE_POLICIES = ("Fail", "Ignore")
_MATCH_POLICIES = ("Equivalent", "Exact")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_ANNOTATIONS, _LONGEST_ANNOTATION = 20, 5 * 1024
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_LINE_BREAK = re.compile(r"[\n\r]")


def policy_errors(item: Object, old: Object | None = None) -> list[FieldError]:
    """The errors of the spec of a ValidatingAdmissionPolicy, on update with the stored one."""
    spec = item.get("spec") or {}
    return [] if old is not None and old.get("spec") == spec else list(_policy_errors(item, spec))


def binding_errors(item: Object, _: Object | None = None) -> list[FieldError]:
    """The errors of the spec of a ValidatingAdmissionPolicyBinding."""
    spec = item.get("spec") or {}
    errors: list[FieldError] = []
    if not spec.get("policyName"):
        errors.append(required("spec.policyName"))
    else:
        errors += field.all_invalid(
            "spec.policyName", spec["policyName"], names.dns_subdomain(spec["policyName"], "characters")
        )
    errors += _param_ref_errors(spec.get("paramRef"), "spec.paramRef")
    errors += match_errors(spec.get("matchResources"), "spec.matchResources")
    return errors + list(_action_errors(spec.get("validationActions") or [], "spec.validationActions"))


def _policy_errors(item: Object, spec: Json) -> Iterator[FieldError]:
    scope = Scope(bool(spec.get("paramKind")), composes=bool(spec.get("variables")), new=True)
    yield from _choice("spec.failurePolicy", spec.get("failurePolicy"), _FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        yield from _param_kind_errors(spec["paramKind"], "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from match_errors(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    yield from condition_errors(
        spec.get("matchConditions") or [], "spec.matchConditions", has_params=scope.has_params
    )
    for index, variable in enumerate(spec.get("variables") or ()):
        yield from _variable_errors(variable, f"spec.variables[{index}]", scope)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        problem = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", problem)
        yield required("spec.auditAnnotations", problem)
    for index, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{index}]", scope)
    yield from _annotations_errors(annotations, item["metadata"].get("name") or "", scope)


def _choice(path: str, value: str | None, choices: Sequence[str]) -> Iterator[FieldError]:
    if value is None:
        yield required(path)
    elif value not in choices:
        yield not_supported(path, value, choices)


def _variable_errors(variable: Json, path: str, scope: Scope) -> Iterator[FieldError]:
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in RESERVED_WORDS:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from compile_errors(f"{path}.expression", scope.add_variable(name, expression))


def _validation_errors(validation: Json, path: str, scope: Scope) -> Iterator[FieldError]:
    expression, message = validation.get("expression") or "", validation.get("message") or ""
    if expression.strip():
        yield from compile_errors(f"{path}.expression", scope.compile(expression, (BOOL,)))
    else:
        yield required(f"{path}.expression", "expression is not specified")
    words = validation.get("messageExpression") or ""
    if words and not words.strip():
        yield invalid(f"{path}.messageExpression", words, "must be non-empty if specified")
    elif words:
        compiled = scope.without_authorizer().compile(words, (STRING,))
        yield from compile_errors(f"{path}.messageExpression", compiled)
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)


def _annotations_errors(annotations: Sequence[Json], policy: str, scope: Scope) -> Iterator[FieldError]:
    path = "spec.auditAnnotations"
    wanted: tuple[Type, ...] = (STRING, NULL)
    if len(annotations) > _MOST_ANNOTATIONS:
        yield invalid(path, annotations, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations")
    seen = set()
    for index, annotation in enumerate(annotations):
        here, key = f"{path}[{index}]", annotation.get("key") or ""
        if policy:
            yield from field.all_invalid(f"{here}.key", f"{policy}/{key}", names.label_key(f"{policy}/{key}"))
        else:
            yield invalid(f"{here}.key", key, "requires metadata.name be non-empty")
        expression = (annotation.get("valueExpression") or "").strip()
        place = f"{here}.valueExpression"
        if not expression:
            yield required(place, "valueExpression is not specified")
        elif len(expression.encode()) > _LONGEST_ANNOTATION:
            yield required(place, f"must not exceed {_LONGEST_ANNOTATION} bytes in length")
        elif error := scope.compile(expression, wanted).error:
            yield invalid(place, annotation["valueExpression"], error)
        if key in seen:
            yield field.duplicate(f"{here}.key", key)
        seen.add(key)


def _param_kind_errors(kind: Json, path: str) -> Iterator[FieldError]:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        yield required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, number = version.rpartition("/")
        if group and (wrong := names.dns_subdomain(group)):
            yield invalid(f"{path}.apiVersion", group, ",".join(wrong))
        if not number:
            yield invalid(f"{path}.apiVersion", version, "version must be specified")
        elif wrong := names.dns_label_1035(number):
            yield invalid(f"{path}.apiVersion", number, ",".join(wrong))
    if not name:
        yield required(f"{path}.kind")
    elif wrong := names.dns_label_1035(name.lower()):
        problem = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        yield invalid(f"{path}.kind", name, problem)


def match_errors(criteria: Json | None, path: str) -> Iterator[FieldError]:
    """The errors of MatchResources."""
    if criteria is None:
        return
    yield from _choice(f"{path}.matchPolicy", criteria.get("matchPolicy"), _MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        selector = criteria.get(name)
        if selector is None:
            yield required(f"{path}.{name}")
        else:
            yield from label_selector_errors(selector, f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(criteria.get(name) or ()):
            yield from _named_rule_errors(rule, f"{path}.{name}[{index}]")


def _named_rule_errors(rule: Json, path: str) -> Iterator[FieldError]:
    seen = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        here = f"{path}.resourceNames[{index}]"
        yield from field.all_invalid(here, name, names.path_segment(name))
        if name in seen:
            yield field.duplicate(here, name)
        seen.add(name)
    yield from rule_errors(rule, path)


def rule_errors(rule: Json, path: str) -> Iterator[FieldError]:
    """The errors of RuleWithOperations."""
    operations = rule.get("operations") or []
    yield from _wildcard_errors(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from _wildcard_errors(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    yield from _wildcard_errors(versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _resource_errors(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope") is not None and rule["scope"] not in _SCOPES:
        yield not_supported(f"{path}.scope", rule["scope"], _SCOPES)


def _wildcard_errors(values: Sequence[str], path: str, name: str) -> Iterator[FieldError]:
    if not values:
        yield required(path)
    elif len(values) > 1 and "*" in values:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {name}")


def _resource_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    if not resources:
        yield required(path)
    yield from _overlap_errors(resources, path)
    plain = [entry for entry in resources if entry and "/" not in entry]
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
    # Of the resources without a subresource Kubernetes looks at the last.
    if "*" in plain and plain[-1] != "*":
        problem = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), problem)


def _overlap_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    wide_resources: set[str] = set()
    wide_subresources: set[str] = set()
    for index, entry in enumerate(resources):
        here = f"{path}[{index}]"
        if not entry:
            yield required(here)
            continue
        resource, slash, subresource = entry.partition("/")
        if not slash:
            continue
        if resource in wide_resources:
            yield invalid(here, entry, f"if '{resource}/*' is present, must not specify {entry}")
        if subresource in wide_subresources:
            yield invalid(here, entry, f"if '*/{subresource}' is present, must not specify {entry}")
        if subresource == "*":
            wide_resources.add(resource)
        if resource == "*":
            wide_subresources.add(subresource)


def _param_ref_errors(ref: Json | None, path: str) -> Iterator[FieldError]:
    if ref is None:
        return
    name, selector = ref.get("name") or "", ref.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        yield from field.all_invalid(f"{path}.name", name, names.path_segment(name))
        if selector is not None:
            yield field.forbidden(f"{path}.name", both)
    if selector is not None:
        yield from label_selector_errors(selector, f"{path}.selector")
        if name:
            yield field.forbidden(f"{path}.selector", both)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    yield from _choice(
        f"{path}.parameterNotFoundAction", ref.get("parameterNotFoundAction") or None, ("Deny", "Allow")
    )


def _action_errors(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"{path}[{index}]", action, _ACTIONS)
        if action in seen:
            yield field.duplicate(f"{path}[{index}]", action)
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        why = "repeating the same validation failure information in the API response and headers"
        yield invalid(path, list(actions), f"must not contain both Deny and Warn ({why} serves no purpose)")
    if not actions:
        yield required(path, "at least one validation action is required")
