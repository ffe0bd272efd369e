"""Checks writes of CustomResourceDefinitions, and what they do to finalizers and conditions.

Go: strategy.go and etcd.go in apiextensions-apiserver/pkg/registry/customresourcedefinition.
"""

from __future__ import annotations

from typing import Any

from envtest.embedded.api.defaults import now
from envtest.embedded.api.store import Collection
from kubernetes_rules.custom_resources.definitions import definition_errors
from kubernetes_rules.custom_resources.rules import definition_rule_errors
from kubernetes_rules.custom_resources.schema import parse_schema
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]

DEFINITIONS: Collection = ("apiextensions.k8s.io", "customresourcedefinitions")
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NO_SCHEMAS = ("x-kubernetes-validations", "default", "enum", "example")
"""The parts of a schema in which there are values, and no further schemas."""

_PENDING = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


def definition_faults(item: Object, old: Object | None) -> list[FieldError]:
    """What is wrong with a definition, which replaces ``old`` if there is one; its rules are compiled."""
    errors = definition_errors(item, old)
    known = _schemas(old) if old is not None else {}
    rules = frozenset(rule["rule"] for schema in known.values() for rule in _rules(schema))
    for path, schema in _schemas(item).items():
        wrong = [one for one in errors if one.field.startswith(path)]
        # A schema that is wrong otherwise may not even be readable.
        if not wrong and _rules(schema):
            unchanged = schema in known.values()
            errors += definition_rule_errors(parse_schema(schema), path, known=rules, unchanged=unchanged)
    return errors


def _schemas(item: Object) -> dict[str, Object]:
    """The schemas by their paths in errors: where all versions have the same one, it is that of the spec."""
    found = [(one.get("schema") or {}).get("openAPIV3Schema") for one in item["spec"].get("versions") or ()]
    if found and all(one == found[0] for one in found):
        return {"spec.validation.openAPIV3Schema": found[0]} if found[0] else {}
    return {f"spec.versions[{at}].schema.openAPIV3Schema": one for at, one in enumerate(found) if one}


def _rules(schema: Any) -> list[Object]:
    """All rules of a schema and of what is below it."""
    if isinstance(schema, list):
        return [rule for one in schema for rule in _rules(one)]
    if not isinstance(schema, dict):
        return []
    below = [rule for key, one in schema.items() if key not in _NO_SCHEMAS for rule in _rules(one)]
    return [*(schema.get("x-kubernetes-validations") or ()), *below]


def marked_for_deletion(item: Object) -> Object:
    """The definition with a time of deletion, its finalizer and the condition that its instances go."""
    item = {**item, "metadata": {**item["metadata"], "deletionTimestamp": now()}}
    finalizers = item["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        item = {**item, "metadata": {**item["metadata"], "finalizers": [*finalizers, FINALIZER]}}
    return with_condition(item, "Terminating", "True", "InstanceDeletionPending", _PENDING)


def collection_of(item: Object) -> Collection:
    """Where the objects of the defined kind are stored."""
    return item["spec"]["group"], item["spec"]["names"]["plural"]


def condition_status(item: Object, kind: str) -> str:
    """True, False, or empty where the definition has no such condition."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((one["status"] for one in conditions if one["type"] == kind), "")


def with_condition(item: Object, kind: str, status: str, reason: str, message: str) -> Object:
    """The definition with this condition; its time changes with its status only."""
    before = (item.get("status") or {}).get("conditions") or []
    old: Object = next((one for one in before if one["type"] == kind), {})
    since = old["lastTransitionTime"] if old.get("status") == status else now()
    new = {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    conditions = [new if one["type"] == kind else one for one in before]
    if not old:
        conditions.append(new)
    return {**item, "status": {**(item.get("status") or {}), "conditions": conditions}}
