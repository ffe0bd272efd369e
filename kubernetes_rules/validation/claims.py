"""Checks the specs of ResourceClaims, and those of the templates that make them."""

from __future__ import annotations

from typing import Any

from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.errors import FieldError, all_invalid, invalid, required
from kubernetes_rules.validation.lists import list_errors
from kubernetes_rules.validation.names import dns_label, dns_subdomain
from kubernetes_rules.validation.opaque import configuration_errors
from kubernetes_rules.validation.selectors import selector_list_errors
from kubernetes_rules.validation.taints import toleration_errors

Object = dict[str, Any]
Names = dict[str, frozenset[str]]
"""The names of the requests, each with those of its subrequests."""

_MOST_ENTRIES = 32
_MOST_SUBREQUESTS = 8
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def claim_spec_errors(spec: Object, path: str = "spec") -> list[FieldError]:
    """The errors of a claim's spec."""
    devices, here = spec.get("devices") or {}, f"{path}.devices"
    names = request_names(devices)
    errors: list[FieldError] = []
    requests, constraints, config = (devices.get(key) or [] for key in ("requests", "constraints", "config"))
    if len(requests) <= _MOST_ENTRIES:
        errors += list_errors(requests, f"{here}.requests", None, _request_errors)
    if len(constraints) <= _MOST_ENTRIES:
        errors += list_errors(
            constraints, f"{here}.constraints", None, lambda item, at: _constraint_errors(item, at, names)
        )
    if len(config) <= _MOST_ENTRIES:
        errors += list_errors(config, f"{here}.config", None, lambda item, at: config_errors(item, at, names))
    return errors + declared_errors("ResourceClaimSpec", spec, path)


def request_names(devices: Object) -> Names:
    """The names that constraints, configuration and results may refer to."""
    return {
        request.get("name") or "": frozenset(
            sub.get("name") or "" for sub in request.get("firstAvailable") or []
        )
        for request in devices.get("requests") or []
    }


def config_errors(config: Object, path: str, names: Names) -> list[FieldError]:
    """The errors of a configuration: the requests that it is for, and its parameters."""
    return references_errors(config.get("requests"), f"{path}.requests", names) + configuration_errors(
        config, path
    )


def references_errors(references: list[str] | None, path: str, names: Names) -> list[FieldError]:
    """The errors of a list of references to requests."""
    if len(references or []) > _MOST_ENTRIES:
        return []
    return list_errors(references, path, None, lambda name, here: reference_errors(name, here, names))


def reference_errors(reference: str, path: str, names: Names) -> list[FieldError]:
    """The errors of one reference: ``request`` or ``request/subrequest``."""
    parts = reference.split("/")
    if len(parts) > 2:
        return [invalid(path, reference, _REFERENCE)]
    errors: list[FieldError] = []
    for part in parts:
        errors += all_invalid(path, part, dns_label(part))
    subrequests = names.get(parts[0])
    if subrequests is None or (len(parts) == 2 and parts[1] not in subrequests):
        errors.append(invalid(path, reference, _REFERENCE))
    return errors


def _request_errors(request: Object, path: str) -> list[FieldError]:
    name, exactly, choices = request.get("name"), request.get("exactly"), request.get("firstAvailable") or []
    errors = all_invalid(f"{path}.name", name or "", dns_label(name or ""))
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not choices:
        return [*errors, required(path, text)]
    if exactly is not None and choices:
        return [*errors, invalid(path, None, f"{text}, but multiple fields are set")]
    if exactly is not None:
        here = f"{path}.exactly"
        errors += _class_name_errors(exactly.get("deviceClassName") or "", f"{here}.deviceClassName")
        return errors + _selection_errors(exactly, here)
    if len(choices) > _MOST_SUBREQUESTS:
        return errors
    return errors + list_errors(choices, f"{path}.firstAvailable", None, _subrequest_errors)


def _subrequest_errors(request: Object, path: str) -> list[FieldError]:
    name = request.get("name") or ""
    return all_invalid(f"{path}.name", name, dns_label(name)) + _selection_errors(request, path)


def _selection_errors(request: Object, path: str) -> list[FieldError]:
    """What an exact request and a subrequest have in common."""
    errors = selector_list_errors(request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode") or "ExactCount", request.get("count") or 0
    if mode == "All" and count != 0:
        text = f"must not be specified when allocationMode is '{mode}'"
        errors.append(invalid(f"{path}.count", count, text))
    elif mode == "ExactCount" and count < 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    return errors + list_errors(request.get("tolerations"), f"{path}.tolerations", None, toleration_errors)


def _class_name_errors(name: str, path: str) -> list[FieldError]:
    return all_invalid(path, name, dns_subdomain(name)) if name else [required(path)]


def _constraint_errors(constraint: Object, path: str, names: Names) -> list[FieldError]:
    errors = references_errors(constraint.get("requests"), f"{path}.requests", names)
    if constraint.get("matchAttribute") is None and constraint.get("distinctAttribute") is None:
        text = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )
        errors.append(required(path, text))
    return errors
