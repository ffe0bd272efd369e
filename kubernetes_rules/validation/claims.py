"""Checks ResourceClaims (specs, also those of templates, and status) and DeviceClasses.

Both have CEL selectors and opaque parameters for drivers.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.devices import binding_errors
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.node_selector import node_selector_errors
from kubernetes_rules.validation.taints import toleration_errors

Object = dict[str, Any]
Names = dict[str, frozenset[str]]
"""The names of the requests, each with those of its subrequests."""

# Limits of resource.k8s.io/v1: DeviceRequestsMaxSize, DeviceConstraintsMaxSize and DeviceConfigMaxSize are
# all 32; FirstAvailableDeviceRequestMaxSize is 8.
_MOST_ENTRIES = 32
_MOST_SUBREQUESTS = 8
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)

# OpaqueParametersMaxLength, DeviceSelectorsMaxSize and CELSelectorExpressionMaxLength.
_MOST_BYTES = 10 * 1024
_MOST_SELECTORS = 32
_EXPRESSION_BYTES = 10 * 1024

# AllocationResultsMaxSize and ResourceClaimReservedForMaxSize; an allocation has the configurations of the
# class and of the claim, so twice DeviceConfigMaxSize.
_MOST_RESULTS = 32
_MOST_CONFIG = 64
_MOST_RESERVED = 256
_MOST_CONDITIONS = 8
_MOST_ADDRESSES = 16
# Limits of metav1.Condition.
_REASON_BYTES = 1024
_MESSAGE_BYTES = 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def class_spec_errors(spec: Object, old: Object | None, path: str = "spec") -> list[FieldError]:
    """The errors of the spec of a DeviceClass; unchanged selectors are not compiled again."""
    errors: list[FieldError] = []
    if old is None or old.get("selectors") != spec.get("selectors"):
        errors += _selector_list_errors(spec.get("selectors"), f"{path}.selectors")
    if len(spec.get("config") or []) <= _MOST_ENTRIES:
        errors += field.list_errors(spec.get("config"), f"{path}.config", _opaque_errors)
    return errors + declared_errors("DeviceClassSpec", spec, path, old)


def claim_spec_errors(spec: Object, path: str = "spec") -> list[FieldError]:
    """The errors of a claim's spec."""
    devices, here = spec.get("devices") or {}, f"{path}.devices"
    known = request_names(devices)
    errors: list[FieldError] = []
    requests, constraints, config = (devices.get(key) or [] for key in ("requests", "constraints", "config"))
    # Lists that are too long are not checked further; declared_errors reports their length.
    if len(requests) <= _MOST_ENTRIES:
        errors += field.list_errors(requests, f"{here}.requests", _request_errors)
    if len(constraints) <= _MOST_ENTRIES:
        errors += field.list_errors(
            constraints, f"{here}.constraints", lambda item, at: _constraint_errors(item, at, known)
        )
    if len(config) <= _MOST_ENTRIES:
        errors += field.list_errors(
            config, f"{here}.config", lambda item, at: _config_errors(item, at, known)
        )
    return errors + declared_errors("ResourceClaimSpec", spec, path)


def request_names(devices: Object) -> Names:
    """The names of requests and subrequests, to which constraints, configuration and results refer."""
    return {
        request.get("name") or "": frozenset(
            sub.get("name") or "" for sub in request.get("firstAvailable") or []
        )
        for request in devices.get("requests") or []
    }


def _config_errors(config: Object, path: str, known: Names) -> list[FieldError]:
    """The errors of a configuration: its references to requests, and its parameters."""
    errors = _references_errors(config.get("requests"), f"{path}.requests", known)
    return errors + _opaque_errors(config, path)


def _references_errors(references: list[str] | None, path: str, known: Names) -> list[FieldError]:
    """The errors of a list of references to requests."""
    if len(references or []) > _MOST_ENTRIES:
        return []
    return field.list_errors(references, path, lambda name, here: _reference_errors(name, here, known))


def _reference_errors(reference: str, path: str, known: Names) -> list[FieldError]:
    """The errors of one reference: ``request`` or ``request/subrequest``."""
    parts = reference.split("/")
    if len(parts) > 2:
        return [field.invalid(path, reference, _REFERENCE)]
    errors: list[FieldError] = []
    for part in parts:
        errors += field.all_invalid(path, part, names.dns_label(part))
    subrequests = known.get(parts[0])
    if subrequests is None or (len(parts) == 2 and parts[1] not in subrequests):
        errors.append(field.invalid(path, reference, _REFERENCE))
    return errors


def _request_errors(request: Object, path: str) -> list[FieldError]:
    name, exactly, choices = request.get("name"), request.get("exactly"), request.get("firstAvailable") or []
    errors = field.all_invalid(f"{path}.name", name or "", names.dns_label(name or ""))
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not choices:
        return [*errors, field.required(path, text)]
    if exactly is not None and choices:
        return [*errors, field.invalid(path, None, f"{text}, but multiple fields are set")]
    if exactly is not None:
        here = f"{path}.exactly"
        errors += _class_name_errors(exactly.get("deviceClassName") or "", f"{here}.deviceClassName")
        return errors + _selection_errors(exactly, here)
    if len(choices) > _MOST_SUBREQUESTS:
        return errors
    return errors + field.list_errors(choices, f"{path}.firstAvailable", _subrequest_errors)


def _subrequest_errors(request: Object, path: str) -> list[FieldError]:
    name = request.get("name") or ""
    return field.all_invalid(f"{path}.name", name, names.dns_label(name)) + _selection_errors(request, path)


def _selection_errors(request: Object, path: str) -> list[FieldError]:
    """The errors of the fields that an exact request and a subrequest have in common."""
    errors = _selector_list_errors(request.get("selectors"), f"{path}.selectors")
    mode, count = request.get("allocationMode") or "ExactCount", request.get("count") or 0
    if mode == "All" and count != 0:
        text = f"must not be specified when allocationMode is '{mode}'"
        errors.append(field.invalid(f"{path}.count", count, text))
    elif mode == "ExactCount" and count < 0:
        errors.append(field.invalid(f"{path}.count", count, "must be greater than zero"))
    return errors + field.list_errors(request.get("tolerations"), f"{path}.tolerations", toleration_errors)


def _class_name_errors(name: str, path: str) -> list[FieldError]:
    return field.all_invalid(path, name, names.dns_subdomain(name)) if name else [field.required(path)]


def _constraint_errors(constraint: Object, path: str, known: Names) -> list[FieldError]:
    errors = _references_errors(constraint.get("requests"), f"{path}.requests", known)
    if constraint.get("matchAttribute") is None and constraint.get("distinctAttribute") is None:
        text = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )
        errors.append(field.required(path, text))
    return errors


def _opaque_errors(config: Object, path: str) -> list[FieldError]:
    """The errors of the opaque parameters of a configuration."""
    opaque = config.get("opaque")
    if opaque is None:
        return [field.required(f"{path}.opaque")]
    errors = names.driver_name_errors(opaque.get("driver") or "", f"{path}.opaque.driver")
    return errors + _raw_errors(opaque.get("parameters"), f"{path}.opaque.parameters")


def _raw_errors(value: Any, path: str) -> list[FieldError]:
    """The errors of a raw JSON object; None counts as absent."""
    if value is None:
        return [field.required(path)]
    # The limit is for the text as it was sent; clients of the API send the compact form.
    if len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _MOST_BYTES:
        return [field.too_long(path, _MOST_BYTES)]
    if not isinstance(value, dict):
        return [field.invalid(path, field.OMITTED, "must be a valid JSON object")]
    return []


def _selector_list_errors(selectors: list[Object] | None, path: str) -> list[FieldError]:
    """The errors of a list of selectors; a declared rule limits their number."""
    if len(selectors or []) > _MOST_SELECTORS:
        return []
    return field.list_errors(selectors, path, _selector_errors)


def _selector_errors(selector: Object, path: str) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [field.required(f"{path}.cel")]
    expression, here = cel.get("expression") or "", f"{path}.cel.expression"
    if len(expression.encode()) > _EXPRESSION_BYTES:
        return [field.too_long(here, _EXPRESSION_BYTES)]
    return _compile_errors(expression, here)


def _compile_errors(expression: str, path: str) -> list[FieldError]:
    # Compiling needs all of CEL; a process that checks no expression does not load it.
    from kubernetes_rules.cel.selector import SelectorInvalid, compile_selector

    try:
        compile_selector(expression)
    except SelectorInvalid as error:
        return [field.invalid(path, expression, f"compilation failed: {error.what}")]
    return []


def claim_status_errors(claim: Object, old: Object, path: str = "status") -> list[FieldError]:
    """The errors of the status of ``claim`` as an update of ``old``."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    known = request_names((claim.get("spec") or {}).get("devices") or {})
    errors: list[FieldError] = []
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(reserved) <= _MOST_RESERVED:
        errors += field.list_errors(reserved, f"{path}.reservedFor", _consumer_errors)
    allocated = {
        _device_id(result) for result in ((allocation or {}).get("devices") or {}).get("results") or []
    }
    errors += field.list_errors(
        status.get("devices"), f"{path}.devices", lambda item, at: _device_status_errors(item, at, allocated)
    )
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        errors.append(field.forbidden(f"{path}.reservedFor", text))
    elif claim["metadata"].get("deletionTimestamp"):
        earlier = before.get("reservedFor") or []
        if any(consumer not in earlier for consumer in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(field.forbidden(f"{path}.reservedFor", text))
    if allocation is None or before.get("allocation") is None:
        errors += _allocation_errors(allocation, f"{path}.allocation", known) if allocation else []
    elif allocation != before["allocation"]:
        # An allocation can only be cleared as a whole.
        errors.append(field.invalid(f"{path}.allocation", allocation, "field is immutable"))
        status, before = {**status, "allocation": None}, {**before, "allocation": None}
    return errors + declared_errors("ResourceClaimStatus", status, path, before)


def condition_list_errors(conditions: list[Object] | None, path: str, most: int) -> list[FieldError]:
    """The errors of a list of metav1.Condition, which may have each type once."""
    conditions = conditions or []
    errors = [field.too_many(path, len(conditions), most)] if len(conditions) > most else []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        kind = condition.get("type") or ""
        if kind in seen:
            errors.append(field.duplicate(f"{path}[{index}]", kind))
        seen.add(kind)
        errors += _condition_errors(condition, f"{path}[{index}]")
    return errors


def _condition_errors(condition: Object, path: str) -> list[FieldError]:
    kind, status, reason, message = (
        condition.get(key) or "" for key in ("type", "status", "reason", "message")
    )
    errors = (
        field.all_invalid(f"{path}.type", kind, names.label_key(kind))
        if kind
        else [field.required(f"{path}.type", "is required")]
    )
    if not status:
        errors.append(field.required(f"{path}.status"))
    elif status not in ("False", "True", "Unknown"):
        errors.append(field.not_supported(f"{path}.status", status, ("False", "True", "Unknown")))
    if (condition.get("observedGeneration") or 0) < 0:
        text = "must be greater than or equal to zero"
        errors.append(field.invalid(f"{path}.observedGeneration", condition["observedGeneration"], text))
    if not condition.get("lastTransitionTime"):
        errors.append(field.required(f"{path}.lastTransitionTime"))
    if not reason:
        errors.append(field.required(f"{path}.reason"))
    else:
        if not _REASON.fullmatch(reason):
            text = "a condition reason must start with alphabetic character, optionally followed by a string"
            errors.append(
                field.invalid(f"{path}.reason", reason, f"{text} of alphanumeric characters or '_,:'")
            )
        if len(reason.encode()) > _REASON_BYTES:
            errors.append(field.too_long(f"{path}.reason", _REASON_BYTES))
    if len(message.encode()) > _MESSAGE_BYTES:
        errors.append(field.too_long(f"{path}.message", _MESSAGE_BYTES))
    return errors


def _device_id(holder: Object) -> tuple[str, ...]:
    return tuple(holder.get(key) or "" for key in ("driver", "pool", "device", "shareID"))


def _consumer_errors(consumer: Object, path: str) -> list[FieldError]:
    return [field.required(f"{path}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]


def _allocation_errors(allocation: Object, path: str, known: Names) -> list[FieldError]:
    devices, here = allocation.get("devices") or {}, f"{path}.devices"
    results, config = devices.get("results") or [], devices.get("config") or []
    errors: list[FieldError] = []
    if len(results) <= _MOST_RESULTS:
        errors += field.list_errors(
            results, f"{here}.results", lambda item, at: _result_errors(item, at, known)
        )
    if len(config) <= _MOST_CONFIG:
        errors += field.list_errors(
            config, f"{here}.config", lambda item, at: _config_errors(item, at, known)
        )
    selector = allocation.get("nodeSelector")
    return errors if selector is None else errors + node_selector_errors(selector, f"{path}.nodeSelector")


def _result_errors(result: Object, path: str, known: Names) -> list[FieldError]:
    device = result.get("device") or ""
    return [
        *_reference_errors(result.get("request") or "", f"{path}.request", known),
        *names.driver_name_errors(result.get("driver") or "", f"{path}.driver"),
        *field.all_invalid(f"{path}.device", device, names.dns_label(device)),
        *binding_errors(result, path),
        *field.list_errors(result.get("tolerations"), f"{path}.tolerations", toleration_errors),
    ]


def _device_status_errors(device: Object, path: str, allocated: set[tuple[str, ...]]) -> list[FieldError]:
    name = device.get("device") or ""
    errors = names.driver_name_errors(device.get("driver") or "", f"{path}.driver")
    errors += names.pool_name_errors(device.get("pool") or "", f"{path}.pool")
    errors += field.all_invalid(f"{path}.device", name, names.dns_label(name))
    if _device_id(device) not in allocated:
        shown = "/".join(_device_id(device)[:3])
        errors.append(field.invalid(path, shown, "must be an allocated device in the claim"))
    errors += condition_list_errors(device.get("conditions"), f"{path}.conditions", _MOST_CONDITIONS)
    if device.get("data") is not None:
        errors += _raw_errors(device["data"], f"{path}.data")
    addresses = (device.get("networkData") or {}).get("ips") or []
    if len(addresses) > _MOST_ADDRESSES:
        return errors
    return errors + field.list_errors(addresses, f"{path}.networkData.ips", _address_errors)


def _address_errors(address: str, path: str) -> list[FieldError]:
    """The errors of an interface's address with its prefix length, in canonical form."""
    text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    try:
        parsed = ipaddress.ip_interface(address) if "/" in address else None
    except ValueError:
        parsed = None
    if parsed is None:
        return [field.invalid(path, address, text)]
    if str(parsed) != address:
        return [field.invalid(path, address, f'must be in canonical form ("{parsed}")')]
    return []
