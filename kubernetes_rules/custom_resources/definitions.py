"""CustomResourceDefinitions: defaults, what clients cannot set, and whether one is valid.

Sources: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions (v1/defaults.go, v1/conversion.go,
validation/validation.go) and pkg/registry/customresourcedefinition/strategy.go. Errors have the paths of
Kubernetes' internal type: what is the same in all versions is reported at ``spec``, not at a version.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kubernetes_rules.custom_resources.default_values import default_errors
from kubernetes_rules.custom_resources.embedded import NotObjectMeta, coerced
from kubernetes_rules.custom_resources.formats import is_supported
from kubernetes_rules.custom_resources.openapi import openapi_errors
from kubernetes_rules.custom_resources.schema import Raw, parse_schema
from kubernetes_rules.custom_resources.structural import POINTERS, children, structural_errors, unsupported
from kubernetes_rules.custom_resources.versions import (
    column_errors,
    label_errors,
    name_errors,
    pointer_error,
    selectable_errors,
    subresource_errors,
    warning_texts,
)
from kubernetes_rules.printed import quoted
from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.metadata import metadata_errors, metadata_update_errors

Object = dict[str, Any]

_SHARED = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
"""Fields of versions that move to ``spec`` if they are the same everywhere, and their names there."""
_SCOPES = ("Cluster", "Namespaced")
_STRATEGIES = ("None", "Webhook")
_PLAIN_AT_ROOT = (
    "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength "
    "pattern maxItems minItems uniqueItems multipleOf required items properties externalDocs example"
)
_ROOT_WITH_STATUS = {
    **{keyword: keyword[0].upper() + keyword[1:] for keyword in _PLAIN_AT_ROOT.split()},
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""Keywords that the root may have with a status subresource, and the names of their fields in Go."""
_EMPTY_MAPS = frozenset({"properties", "patternProperties", "definitions", "dependencies"})
_APPROVAL = "api-approved.kubernetes.io"


def defaulted_definition(crd: Object) -> Object:
    """A definition with the defaults of Kubernetes."""
    result = copy.deepcopy(crd)
    spec = result.setdefault("spec", {})
    kind_names = spec.setdefault("names", {})
    kind = kind_names.get("kind") or ""
    if not kind_names.get("singular") and kind:
        kind_names["singular"] = kind.lower()
    if not kind_names.get("listKind") and kind:
        kind_names["listKind"] = f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    return result


def prepared_definition(crd: Object, old: Object | None = None) -> Object:
    """A definition as it will be stored, on update with what it replaces: clients cannot set the status.

    The version that is stored from now on is noted in ``status.storedVersions``.
    """
    result = copy.deepcopy(crd)
    spec = result.get("spec") or {}
    status = copy.deepcopy(old.get("status") or {}) if old is not None else {}
    generation = 1
    if old is not None:
        generation = (old.get("metadata") or {}).get("generation") or 0
        generation += spec != old.get("spec")
    result["metadata"] = {**(result.get("metadata") or {}), "generation": generation}
    stored = list(status.get("storedVersions") or [])
    now = next(
        (version.get("name") for version in spec.get("versions") or [] if version.get("storage")), None
    )
    if now is not None and now not in stored:
        stored.append(now)
    result["status"] = {
        "conditions": None, "acceptedNames": {"plural": "", "kind": ""}, **status, "storedVersions": stored
    }  # fmt: skip
    for schema in filter(_has_default, _schemas(spec)):
        if unsupported(schema) is None and not structural_errors(schema, ""):
            _read_defaults(schema)
    return result


def _read_defaults(schema: Raw) -> None:
    """Validation reads the metadata of embedded resources in defaults, and leaves it as it was read."""
    if isinstance(schema, dict) and schema.get("default") is not None:
        with suppress(NotObjectMeta):
            schema["default"], _ = coerced(parse_schema(schema), schema["default"])
    for below in children(schema):
        _read_defaults(below)


def definition_errors(crd: Object, old: Object | None = None) -> list[FieldError]:
    """The errors of a defaulted and prepared definition, on update with what it replaces.

    The expressions of its rules are not compiled here.
    """
    metadata, spec, status = crd.get("metadata") or {}, crd.get("spec") or {}, crd.get("status") or {}
    if old is None:
        wanted = f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}"

        def own_name_errors(name: str) -> list[str]:
            wrong = names.dns_subdomain(name, "characters")
            return wrong if name == wanted else [*wrong, 'must be spec.names.plural+"."+spec.group']

        errors = metadata_errors(metadata, namespaced=False, name_rule=own_name_errors)
    else:
        errors = metadata_update_errors(metadata, old.get("metadata") or {})
    # Only kinds of Kubernetes itself restrict finalizers further than to qualified names.
    errors = [error for error in errors if not error.field.startswith("metadata.finalizers[")]
    errors += _spec_errors(_internal(spec))
    if old is not None:
        errors += _change_errors(spec, old)
    errors += name_errors(status.get("acceptedNames") or {}, "status.acceptedNames")
    errors += _stored_version_errors(status.get("storedVersions") or [], spec.get("versions") or [])
    errors += _approval_errors(crd, old)
    if spec.get("preserveUnknownFields") and not (
        old and (old.get("spec") or {}).get("preserveUnknownFields")
    ):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
            "instead"
        )
        errors.append(field.invalid("spec.preserveUnknownFields", value=True, detail=text))
    return errors


def _internal(spec: Mapping[str, Any]) -> Object:
    """The spec with what is the same in all versions moved out of them."""
    result = dict(spec)
    versions = [dict(version) for version in spec.get("versions") or []]
    for name, shared in _SHARED.items():
        first = versions[0].get(name) if versions else None
        if all(_compared(version.get(name)) == _compared(first) for version in versions):
            result[shared] = first
            for version in versions:
                version.pop(name, None)
    result["versions"] = versions
    return result


def _compared(value: Any) -> Any:
    """The value without fields that Go takes for absent ones."""
    if isinstance(value, dict):
        return {key: _compared(entry) for key, entry in value.items() if _counts(key, entry)}
    return [_compared(entry) for entry in value] if isinstance(value, list) else value or None


def _counts(key: str, value: Any) -> bool:
    if key in POINTERS or (isinstance(value, int) and not isinstance(value, bool)):
        return value is not None
    return value not in (None, [], "", False) and not (value == {} and key in _EMPTY_MAPS)


def _spec_errors(spec: Object) -> list[FieldError]:
    errors = _group_and_scope_errors(spec)
    versions = spec["versions"]
    shared = (spec.get("validation") or {}).get("openAPIV3Schema")
    for index, version in enumerate(versions):
        if shared is None and (version.get("schema") or {}).get("openAPIV3Schema") is None:
            errors.append(field.required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    if spec.get("preserveUnknownFields") and any(map(_has_default, _schemas(spec))):
        text = "must be false in order to use defaults in the schema"
        errors.append(field.invalid("spec.preserveUnknownFields", value=True, detail=text))
    for index, version in enumerate(versions):
        errors += _version_errors(version, spec, f"spec.versions[{index}]")
    found_names = [version.get("name") or "" for version in versions]
    if len(set(found_names)) < len(found_names):
        errors.append(field.without_value("spec.versions", "must contain unique version names"))
    if sum(1 for version in versions if version.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(field.without_value("spec.versions", text))
    if found_names and found_names[0]:
        errors += label_errors("spec.version", found_names[0])
    kind_names = spec.get("names") or {}
    required = ("plural", "singular", "kind", "listKind")
    errors += [field.required(f"spec.names.{name}") for name in required if not kind_names.get(name)]
    errors += name_errors(kind_names, "spec.names")
    subresources = [spec.get("subresources"), *(version.get("subresources") for version in versions)]
    has_status = any(map(_has_status, subresources))
    errors += _validation_errors(spec.get("validation"), "spec.validation", has_status=has_status)
    errors += subresource_errors(spec.get("subresources"), "spec.subresources")
    errors += column_errors(spec, "spec.additionalPrinterColumns")
    text = "may only be set when validations.schema is included"
    errors += selectable_errors(spec, spec.get("validation"), "spec", text)
    return errors + _conversion_errors(spec)


def _group_and_scope_errors(spec: Object) -> list[FieldError]:
    group, scope = spec.get("group") or "", spec.get("scope") or ""
    errors: list[FieldError] = []
    if not group:
        errors.append(field.required("spec.group"))
    elif wrong := names.dns_subdomain(group, "characters"):
        errors.append(field.invalid("spec.group", group, ",".join(wrong)))
    elif "." not in group:
        errors.append(field.invalid("spec.group", group, "should be a domain with at least one dot"))
    if not scope:
        errors.append(field.required("spec.scope"))
    elif scope not in _SCOPES:
        errors.append(field.not_supported("spec.scope", scope, _SCOPES))
    return errors


def _schemas(spec: Object) -> list[Raw]:
    holders = [spec.get("validation"), *(version.get("schema") for version in spec.get("versions") or ())]
    found = [(holder or {}).get("openAPIV3Schema") for holder in holders]
    return [schema for schema in found if schema is not None]


def _has_default(schema: Raw) -> bool:
    return schema.get("default") is not None or any(map(_has_default, children(schema)))


def _has_status(subresources: Raw | None) -> bool:
    return (subresources or {}).get("status") is not None


def _version_errors(version: Object, spec: Object, path: str) -> list[FieldError]:
    errors = label_errors(f"{path}.name", version.get("name") or "")
    errors += [
        pointer_error(f"{path}.deprecationWarning", version["deprecationWarning"], text)
        for text in warning_texts(version)
    ]
    of_spec = spec.get("subresources")
    per_version = any(entry.get("subresources") is not None for entry in spec["versions"])
    # The first version of a name decides about all of that name.
    named = next(entry for entry in spec["versions"] if entry.get("name") == version.get("name"))
    has_status = _has_status(named.get("subresources") if per_version else of_spec)
    errors += _validation_errors(version.get("schema"), f"{path}.schema", has_status=has_status)
    errors += subresource_errors(version.get("subresources"), f"{path}.subresources")
    errors += column_errors(version, f"{path}.additionalPrinterColumns")
    text = "may only be set when `version.schema.openAPIV3Schema` is not included"
    return errors + selectable_errors(version, version.get("schema"), path, text)


def _validation_errors(validation: Raw | None, path: str, *, has_status: bool) -> list[FieldError]:
    schema = (validation or {}).get("openAPIV3Schema")
    if schema is None:
        return []
    here = f"{path}.openAPIV3Schema"
    errors = _root_errors(schema, here) if has_status else []
    if schema.get("nullable"):
        errors.append(field.forbidden(f"{here}.nullable", "nullable cannot be true at the root"))
    reason = unsupported(schema)
    if reason is None:
        wrong = structural_errors(schema, here)
        errors += wrong or default_errors(parse_schema(schema), here)
    errors += openapi_errors(schema, here)
    if not errors and reason is not None:
        errors.append(field.invalid(here, "", reason))
    return errors


def _is_pointer_set(keyword: str, value: Any) -> bool:
    """Whether a field is not as in an empty schema: even empty lists and maps are set."""
    return value is not None and (keyword in POINTERS or not (value == "" or value is False))


def _root_errors(schema: Raw, path: str) -> list[FieldError]:
    """With a status subresource the root may only hold what also holds for the status alone."""
    rule = "of the schema if the status subresource is enabled"
    others = [
        keyword
        for keyword, value in schema.items()
        if keyword not in _ROOT_WITH_STATUS and _is_pointer_set(keyword, value)
    ]
    kind = schema.get("type") or ""
    # Kubernetes stops at the first field of its type that is wrong; only these lie before the type.
    if kind not in ("", "object") and not {"id", "$schema", "$ref"} & set(others):
        text = f'only "object" is allowed as the type at the root {rule}'
        return [field.invalid(f"{path}.type", kind, text)]
    if others:
        allowed = " ".join(_ROOT_WITH_STATUS.values())
        return [field.without_value(path, f"only [{allowed}] fields are allowed at the root {rule}")]
    return []


def _conversion_errors(spec: Object) -> list[FieldError]:
    conversion, path = spec.get("conversion"), "spec.conversion"
    if conversion is None:
        return []
    strategy = conversion.get("strategy") or ""
    if strategy == "Webhook":
        text = "conversion webhooks are not called here, use None and versions with the same fields"
        return [field.forbidden(f"{path}.strategy", text)]
    errors: list[FieldError] = []
    if not strategy:
        errors.append(field.required(f"{path}.strategy"))
    elif strategy not in _STRATEGIES:
        errors.append(field.not_supported(f"{path}.strategy", strategy, _STRATEGIES))
    if strategy != "None" and spec.get("preserveUnknownFields"):
        text = "must be None if spec.preserveUnknownFields is true"
        errors.append(pointer_error(f"{path}.strategy", strategy, text))
    webhook = conversion.get("webhook") or {}
    text = "should not be set when strategy is not set to Webhook"
    if webhook.get("clientConfig") is not None:
        errors.append(field.forbidden(f"{path}.webhookClientConfig", text))
    if webhook.get("conversionReviewVersions"):
        errors.append(field.forbidden(f"{path}.conversionReviewVersions", text))
    return errors


def _change_errors(spec: Object, old: Object) -> list[FieldError]:
    old_spec = old.get("spec") or {}
    new_names, old_names = spec.get("names") or {}, old_spec.get("names") or {}
    fixed = [("spec.group", spec.get("group"), old_spec.get("group"))]
    fixed.append(("spec.names.plural", new_names.get("plural"), old_names.get("plural")))
    if is_established(old):
        fixed.append(("spec.scope", spec.get("scope"), old_spec.get("scope")))
        fixed.append(("spec.names.kind", new_names.get("kind"), old_names.get("kind")))
    return [
        (pointer_error if path == "spec.scope" else field.invalid)(path, new or "", "field is immutable")
        for path, new, before in fixed
        if (new or "") != (before or "")
    ]


def is_established(crd: Object) -> bool:
    """Whether the API of a definition is served."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions)


def _stored_version_errors(stored: list[str], versions: list[Object]) -> list[FieldError]:
    path = "status.storedVersions"
    if not stored:
        return [field.invalid(path, None, "must have at least one stored version")]
    left = set(stored)
    errors: list[FieldError] = []
    for version in versions:
        name = version.get("name") or ""
        if version.get("storage") and name not in left:
            errors.append(field.invalid(path, stored, f"must have the storage version {name}"))
        left.discard(name)
    for index, name in enumerate(stored):
        if name in left:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and "
                f"removes {name} from status.storedVersions"
            )
            errors.append(field.invalid(f"{path}[{index}]", name, text))
    return errors


def _approval(crd: Object) -> tuple[str, str]:
    """The state of the API approval that groups of Kubernetes need, and the text about it."""
    from_crd = ((crd.get("metadata") or {}).get("annotations") or {}).get(_APPROVAL) or ""
    needed = f"protected groups must have approval annotation {quoted(_APPROVAL)}"
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not from_crd:
        return "missing", f"{needed}, {see}"
    if from_crd.startswith("unapproved"):
        return "bypassed", ""
    scheme, separator, rest = from_crd.partition("://")
    if separator and scheme.isalnum() and rest.partition("/")[0]:
        return "approved", ""
    return "invalid", f'{needed} with either a URL or a reason starting with "unapproved", {see}'


def _approval_errors(crd: Object, old: Object | None) -> list[FieldError]:
    group = (crd.get("spec") or {}).get("group") or ""
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    state, text = _approval(crd)
    if (old is not None and _approval(old)[0] == state) or not text:
        return []
    path = f"metadata.annotations[{_APPROVAL}]"
    if state == "missing":
        return [field.required(path, text)]
    return [field.invalid(path, crd["metadata"]["annotations"][_APPROVAL], text)]


def definition_warnings(crd: Object, old: Object | None = None) -> list[str]:
    """The warnings that a client gets for a definition, on update only new ones."""
    before = definition_warnings(old) if old is not None else []
    formats: list[str] = []
    sets: set[str] = set()

    def look(schema: Raw) -> None:
        kind, form = schema.get("type") or "", schema.get("format") or ""
        if form and not is_supported(form, (kind,)):
            formats.append(f"unrecognized format {quoted(form)}")
        items = schema.get("items")
        if schema.get("x-kubernetes-list-type") == "set" and isinstance(items, dict):
            of = items.get("type")
            if of in ("object", "array"):
                sets.add(
                    f"x-kubernetes-list-type: set for items of type {quoted(of)} is not supported by "
                    "server-side apply or CEL validation rules"
                )
        for child in children(schema):
            look(child)

    for schema in _schemas(_internal(crd.get("spec") or {})):
        look(schema)
    return [warning for warning in [*formats, *sorted(sets)] if warning not in before]
