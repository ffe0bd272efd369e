"""Checks the environment variables of containers, and where their values come from."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation.errors import FieldError, all_invalid, invalid, not_supported, required
from kubernetes_rules.validation.names import (
    config_key,
    dns_subdomain,
    environment_name,
    label_key,
    prefix_label_key,
)

Object = dict[str, Any]

_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_LABELS = frozenset(
    {*_FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName"}
    | {"status.phase"}
)
_RESOURCES = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PREFIXES = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def variable_errors(variables: list[Object], path: str) -> list[FieldError]:
    """The errors of ``env``."""
    errors: list[FieldError] = []
    for index, variable in enumerate(variables):
        here, name = f"{path}[{index}]", variable.get("name") or ""
        if name:
            errors += all_invalid(f"{here}.name", name, environment_name(name))
        else:
            errors.append(required(f"{here}.name"))
        if variable.get("valueFrom") is not None:
            errors += _source_errors(variable["valueFrom"], bool(variable.get("value")), f"{here}.valueFrom")
    return errors


def variable_set_errors(sets: list[Object], path: str) -> list[FieldError]:
    """The errors of ``envFrom``."""
    errors: list[FieldError] = []
    for index, one in enumerate(sets):
        here, prefix = f"{path}[{index}]", one.get("prefix") or ""
        if prefix:
            errors += all_invalid(f"{here}.prefix", prefix, environment_name(prefix))
        given = [key for key in ("configMapRef", "secretRef") if one.get(key) is not None]
        for key in given:
            name = one[key].get("name") or ""
            if name:
                # A trailing hyphen passes, as if the name were the beginning of one.
                masked = f"{name[:-1]}a" if len(name) > 1 and name.endswith("-") else name
                errors += all_invalid(f"{here}.{key}.name", name, dns_subdomain(masked, "characters"))
            else:
                errors.append(required(f"{here}.{key}.name"))
        if not given:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _source_errors(source: Object, has_value: bool, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [key for key in _SOURCES if source.get(key) is not None]
    for key in given:
        here = f"{path}.{key}"
        match key:
            case "fieldRef":
                errors += _field_errors(source[key], here)
            case "resourceFieldRef":
                errors += _resource_errors(source[key], here)
            case "configMapKeyRef" | "secretKeyRef":
                errors += _key_errors(source[key], here)
    if not given:
        listed = f"{', '.join(f'`{key}`' for key in _SOURCES[:-1])} or `{_SOURCES[-1]}`"
        errors.append(invalid(path, "", f"must specify one of: {listed}"))
    elif has_value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _field_errors(reference: Object, path: str) -> list[FieldError]:
    """The errors of a reference to a field of the pod, such as ``metadata.labels['app']``."""
    field, version = reference.get("fieldPath") or "", reference.get("apiVersion") or "v1"
    here = f"{path}.fieldPath"
    if not field:
        return [required(here)]
    if version != "v1":
        return [invalid(here, field, f"error converting fieldPath: unsupported pod version: {version}")]
    name, bracket, key = field.removesuffix("']").partition("['")
    if field.endswith("']") and bracket and name:
        if name == "metadata.annotations":
            return all_invalid(path, key.lower(), prefix_label_key(key))
        if name == "metadata.labels":
            return all_invalid(path, key, label_key(key))
        text = f"error converting fieldPath: field label does not support subscript: {field}"
        return [invalid(here, field, text)]
    field = "spec.nodeName" if field == "spec.host" else field
    if field not in _KNOWN_LABELS:
        return [invalid(here, field, f"error converting fieldPath: field label not supported: {field}")]
    return [] if field in _FIELDS else [not_supported(here, field, _FIELDS)]


def _resource_errors(reference: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name = reference.get("resource") or ""
    if not name:
        errors.append(required(f"{path}.resource"))
    elif name not in _RESOURCES and not name.startswith(_HUGE_PREFIXES):
        errors.append(not_supported(f"{path}.resource", name, _RESOURCES))
    divisor = Quantity.parse(str(reference.get("divisor") or "0"))
    kind = name.partition(".")[2]
    allowed = _CPU_DIVISORS if kind == "cpu" else _BYTE_DIVISORS
    if (
        divisor.value
        and (name in _RESOURCES or name.startswith(_HUGE_PREFIXES))
        and str(divisor) not in allowed
    ):
        listed = "1m and 1" if kind == "cpu" else ", ".join(_BYTE_DIVISORS)
        what = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}
        text = f"only divisor's values {listed} are supported with the {what.get(kind, 'hugepages')} resource"
        errors.append(invalid(f"{path}.divisor", name, text))
    return errors


def _key_errors(reference: Object, path: str) -> list[FieldError]:
    name, key = reference.get("name") or "", reference.get("key") or ""
    errors = all_invalid(f"{path}.name", name, dns_subdomain(name, "characters"))
    if not key:
        return [*errors, required(f"{path}.key")]
    return errors + all_invalid(f"{path}.key", key, config_key(key))
