"""Checks the metadata of objects: names, labels, annotations, finalizers, owners, and their updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]

_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_TEMPLATE_FIELDS = frozenset({"labels", "annotations"})
_IMMUTABLE = "field is immutable"


def name_errors(name: str) -> list[str]:
    """The messages for an invalid object name; for most kinds it is a subdomain."""
    return names.dns_subdomain(name, "characters")


def metadata_errors(
    metadata: Object,
    *,
    namespaced: bool,
    path: str = "metadata",
    name_rule: Callable[[str], list[str]] = name_errors,
    checks_generate_name: bool = True,
) -> list[FieldError]:
    """The errors of a new object's metadata.

    ``name_rule`` is the rule of names of the object's kind. Classes are not checked for generateName.
    """
    errors: list[FieldError] = []
    prefix = metadata.get("generateName") or ""
    if prefix and checks_generate_name:
        # maskTrailingDash: the generated suffix follows, so a dash at the end is not the end of the name.
        masked = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        errors += field.all_invalid(f"{path}.generateName", prefix, name_rule(masked))
    name = metadata.get("name") or ""
    if name:
        errors += field.all_invalid(f"{path}.name", name, name_rule(name))
    else:
        errors.append(field.required(f"{path}.name", "name or generateName is required"))
    namespace = metadata.get("namespace") or ""
    if not namespaced:
        if namespace:
            errors.append(field.forbidden(f"{path}.namespace", "not allowed on this type"))
    elif namespace:
        errors += field.all_invalid(f"{path}.namespace", namespace, names.dns_label(namespace, "characters"))
    else:
        errors.append(field.required(f"{path}.namespace"))
    errors += _generation_errors(metadata, path)
    errors += label_errors(metadata, path)
    errors += _owner_errors(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    finalizers = metadata.get("finalizers") or []
    errors += _finalizer_errors(finalizers, f"{path}.finalizers")
    return errors + _standard_errors(finalizers, f"{path}.finalizers")


def metadata_update_errors(new: Object, old: Object, path: str = "metadata") -> list[FieldError]:
    """The errors of an update of metadata; the server has already restored what clients cannot change."""
    errors: list[FieldError] = []
    finalizers = new.get("finalizers") or []
    added = sorted(set(finalizers) - set(old.get("finalizers") or []))
    if old.get("deletionTimestamp") and added:
        shown = ", ".join(f'"{name}"' for name in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers "
        errors.append(field.forbidden(f"{path}.finalizers", f"{text}[]string{{{shown}}}"))
    if not new.get("resourceVersion"):
        errors.append(field.invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    errors += _generation_errors(new, path)
    for name in ("name", "namespace", "uid"):
        if (new.get(name) or "") != (old.get(name) or ""):
            errors.append(field.invalid(f"{path}.{name}", new.get(name) or "", _IMMUTABLE))
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if new.get(name) != old.get(name):
            errors.append(field.invalid(f"{path}.{name}", new.get(name), _IMMUTABLE))
    errors += label_errors(new, path)
    errors += _owner_errors(new.get("ownerReferences") or [], f"{path}.ownerReferences")
    return errors + _standard_errors(finalizers, f"{path}.finalizers")


def template_metadata_errors(metadata: Object, path: str) -> list[FieldError]:
    """The errors of the metadata in a template, which the created objects get."""
    errors = label_errors(metadata, path)
    for name, value in metadata.items():
        if value and name not in _TEMPLATE_FIELDS:
            # Kubernetes shows Go's name of the field with a small first letter, which makes UID uID.
            shown = {"uid": "uID"}.get(name, name)
            errors.append(field.forbidden(f"{path}.{shown}", "cannot be set"))
    return errors


def label_errors(metadata: Object, path: str) -> list[FieldError]:
    """The errors of labels and annotations."""
    errors = labels_errors(metadata.get("labels") or {}, f"{path}.labels")
    size_bytes = 0
    for key, value in (metadata.get("annotations") or {}).items():
        errors += field.all_invalid(f"{path}.annotations", key, names.annotation_key(key))
        size_bytes += len(key.encode()) + len((value or "").encode())
    if size_bytes > _ANNOTATION_BYTES:
        errors.append(field.too_long(f"{path}.annotations", _ANNOTATION_BYTES))
    return errors


def label_selector_errors(selector: Object, path: str) -> list[FieldError]:
    """The errors of a metav1.LabelSelector."""
    errors = labels_errors(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, one in enumerate(selector.get("matchExpressions") or []):
        here, operator, values = (
            f"{path}.matchExpressions[{index}]",
            one.get("operator"),
            one.get("values") or [],
        )
        if operator in ("In", "NotIn") and not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(field.required(f"{here}.values", text))
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(field.forbidden(f"{here}.values", text))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            errors.append(field.invalid(f"{here}.operator", operator or "", "not a valid selector operator"))
        key = one.get("key") or ""
        errors += field.all_invalid(f"{here}.key", key, names.label_key(key))
        for at, value in enumerate(values):
            errors += field.all_invalid(f"{here}.values[{at}]", value, names.label_value(value))
    return errors


def labels_errors(labels: dict[str, str], path: str) -> list[FieldError]:
    """The errors of the labels at ``path``."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += field.all_invalid(path, key, names.label_key(key))
        errors += field.all_invalid(path, value or "", names.label_value(value or ""))
    return errors


def _generation_errors(metadata: Object, path: str) -> list[FieldError]:
    generation = metadata.get("generation") or 0
    if generation >= 0:
        return []
    return [field.invalid(f"{path}.generation", generation, "must be greater than or equal to 0")]


def _owner_errors(owners: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        here = f"{path}[{index}]"
        version = owner.get("apiVersion") or ""
        errors += [
            field.required(f"{here}.{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        if version and (version.count("/") > 1 or version.endswith("/")):
            errors.append(
                field.invalid(f"{here}.apiVersion", version, "must be <group>/<version> or <version>")
            )
        if (version, owner.get("kind")) == ("v1", "Event"):
            errors.append(field.invalid(here, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind') or ''}/{owner.get('name') or ''}")
            if len(controllers) > 1:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                errors.append(field.invalid(path, owners, f"{text}{controllers[0]} and {controllers[-1]}"))
    return errors


def _finalizer_errors(finalizers: list[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in finalizers:
        errors += field.all_invalid(path, name, names.label_key(name))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(field.invalid(path, finalizers, text))
    return errors


def _standard_errors(finalizers: list[str], path: str) -> list[FieldError]:
    """The errors of finalizers that have no domain and are none of Kubernetes' own."""
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        field.invalid(f"{path}[{index}]", name, text)
        for index, name in enumerate(finalizers)
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]
