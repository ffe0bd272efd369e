"""Checks the metadata of objects: names, labels, annotations, finalizers, owners, what an update keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes_rules.validation.errors import FieldError, all_invalid, forbidden, invalid, required, too_long
from kubernetes_rules.validation.names import (
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    prefix_label_key,
)

Object = dict[str, Any]

_ANNOTATION_BYTES = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_TEMPLATE_FIELDS = frozenset({"labels", "annotations"})
_IMMUTABLE = "field is immutable"


def name_errors(name: str) -> list[str]:
    """What is wrong with the name of most objects: it is a subdomain."""
    return dns_subdomain(name, "characters")


def metadata_errors(
    metadata: Object,
    *,
    namespaced: bool,
    path: str = "metadata",
    name_rule: Callable[[str], list[str]] = name_errors,
    checks_generate_name: bool = True,
) -> list[FieldError]:
    """The errors of a new object's metadata."""
    errors: list[FieldError] = []
    prefix = metadata.get("generateName") or ""
    if prefix and checks_generate_name:
        masked = f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        errors += all_invalid(f"{path}.generateName", prefix, name_rule(masked))
    name = metadata.get("name") or ""
    if name:
        errors += all_invalid(f"{path}.name", name, name_rule(name))
    else:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    namespace = metadata.get("namespace") or ""
    if not namespaced:
        if namespace:
            errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    elif namespace:
        errors += all_invalid(f"{path}.namespace", namespace, dns_label(namespace, "characters"))
    else:
        errors.append(required(f"{path}.namespace"))
    errors += _generation_errors(metadata, path)
    errors += label_errors(metadata, path)
    errors += _owner_errors(metadata.get("ownerReferences") or [], f"{path}.ownerReferences")
    return errors + _finalizer_errors(metadata.get("finalizers") or [], f"{path}.finalizers")


def metadata_update_errors(new: Object, old: Object, path: str = "metadata") -> list[FieldError]:
    """The errors of changed metadata; the server has put back what a client cannot change."""
    errors: list[FieldError] = []
    finalizers = new.get("finalizers") or []
    added = sorted(set(finalizers) - set(old.get("finalizers") or []))
    if old.get("deletionTimestamp") and added:
        shown = ", ".join(f'"{name}"' for name in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers "
        errors.append(forbidden(f"{path}.finalizers", f"{text}[]string{{{shown}}}"))
    if not new.get("resourceVersion"):
        errors.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    errors += _generation_errors(new, path)
    for name in ("name", "namespace", "uid"):
        if (new.get(name) or "") != (old.get(name) or ""):
            errors.append(invalid(f"{path}.{name}", new.get(name) or "", _IMMUTABLE))
    errors += label_errors(new, path)
    errors += _owner_errors(new.get("ownerReferences") or [], f"{path}.ownerReferences")
    return errors + _finalizer_errors(finalizers, f"{path}.finalizers", only_standard=True)


def template_metadata_errors(metadata: Object, path: str) -> list[FieldError]:
    """The errors of the metadata that a template gives to what is made from it."""
    errors = label_errors(metadata, path)
    for name, value in metadata.items():
        if value and name not in _TEMPLATE_FIELDS:
            # The rule walks over Go's names with a small first letter: UID is uID there.
            shown = {"uid": "uID"}.get(name, name)
            errors.append(forbidden(f"{path}.{shown}", "cannot be set"))
    return errors


def label_errors(metadata: Object, path: str) -> list[FieldError]:
    """The errors of labels and annotations."""
    errors: list[FieldError] = []
    for key, value in (metadata.get("labels") or {}).items():
        errors += all_invalid(f"{path}.labels", key, label_key(key))
        errors += all_invalid(f"{path}.labels", value or "", label_value(value or ""))
    size_bytes = 0
    for key, value in (metadata.get("annotations") or {}).items():
        errors += all_invalid(f"{path}.annotations", key, prefix_label_key(key))
        size_bytes += len(key.encode()) + len((value or "").encode())
    if size_bytes > _ANNOTATION_BYTES:
        errors.append(too_long(f"{path}.annotations", _ANNOTATION_BYTES))
    return errors


def _generation_errors(metadata: Object, path: str) -> list[FieldError]:
    generation = metadata.get("generation") or 0
    if generation >= 0:
        return []
    return [invalid(f"{path}.generation", generation, "must be greater than or equal to 0")]


def _owner_errors(owners: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    controllers: list[str] = []
    for index, owner in enumerate(owners):
        here = f"{path}[{index}]"
        version = owner.get("apiVersion") or ""
        errors += [
            required(f"{here}.{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        if version and (version.count("/") > 1 or version.endswith("/")):
            errors.append(invalid(f"{here}.apiVersion", version, "must be <group>/<version> or <version>"))
        if (version, owner.get("kind")) == ("v1", "Event"):
            errors.append(invalid(here, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind') or ''}/{owner.get('name') or ''}")
            if len(controllers) > 1:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                errors.append(invalid(path, owners, f"{text}{controllers[0]} and {controllers[-1]}"))
    return errors


def _finalizer_errors(names: list[str], path: str, *, only_standard: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, name in enumerate(names):
        if not only_standard:
            errors += all_invalid(path, name, label_key(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"{path}[{index}]", name, text))
    if not only_standard and {"orphan", "foregroundDeletion"} <= set(names):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid(path, names, text))
    return errors
