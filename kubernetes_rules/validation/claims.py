"""Checks ResourceClaims: their specs, the specs of templates, and their status when it is written.

Also checks what DeviceClasses have in common with claims: CEL selectors, and parameters for drivers.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import Any

from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.devices import binding_errors
from kubernetes_rules.validation.errors import (
    OMITTED,
    FieldError,
    all_invalid,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kubernetes_rules.validation.lists import list_errors
from kubernetes_rules.validation.names import (
    dns_label,
    dns_subdomain,
    driver_name_errors,
    label_key,
    pool_name_errors,
)
from kubernetes_rules.validation.node_selector import node_selector_errors
from kubernetes_rules.validation.taints import toleration_errors

Object = dict[str, Any]
Names = dict[str, frozenset[str]]
"""The names of the requests, each with those of its subrequests."""

_MOST_ENTRIES = 32
_MOST_SUBREQUESTS = 8
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)

_MOST_BYTES = 10 * 1024

_MOST_SELECTORS = 32
_EXPRESSION_BYTES = 10 * 1024

_MOST_RESULTS = 32
_MOST_CONFIG = 64
_MOST_RESERVED = 256
_MOST_CONDITIONS = 8
_MOST_ADDRESSES = 16
_REASON_BYTES = 1024
_MESSAGE_BYTES = 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


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
        errors += list_errors(
            config, f"{here}.config", None, lambda item, at: _config_errors(item, at, names)
        )
    return errors + declared_errors("ResourceClaimSpec", spec, path)


def request_names(devices: Object) -> Names:
    """The names that constraints, configuration and results may refer to."""
    return {
        request.get("name") or "": frozenset(
            sub.get("name") or "" for sub in request.get("firstAvailable") or []
        )
        for request in devices.get("requests") or []
    }


def _config_errors(config: Object, path: str, names: Names) -> list[FieldError]:
    """The errors of a configuration: the requests that it is for, and its parameters."""
    return _references_errors(config.get("requests"), f"{path}.requests", names) + configuration_errors(
        config, path
    )


def _references_errors(references: list[str] | None, path: str, names: Names) -> list[FieldError]:
    """The errors of a list of references to requests."""
    if len(references or []) > _MOST_ENTRIES:
        return []
    return list_errors(references, path, None, lambda name, here: _reference_errors(name, here, names))


def _reference_errors(reference: str, path: str, names: Names) -> list[FieldError]:
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
    errors = _references_errors(constraint.get("requests"), f"{path}.requests", names)
    if constraint.get("matchAttribute") is None and constraint.get("distinctAttribute") is None:
        text = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )
        errors.append(required(path, text))
    return errors


def configuration_errors(config: Object, path: str) -> list[FieldError]:
    """The errors of a configuration's opaque part."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    errors = driver_name_errors(opaque.get("driver") or "", f"{path}.opaque.driver")
    return errors + _raw_errors(opaque.get("parameters"), f"{path}.opaque.parameters")


def _raw_errors(value: Any, path: str) -> list[FieldError]:
    """The errors of a raw JSON object; None is as good as absent.

    Its length is that of its compact form, which is what the API's clients send.
    """
    if value is None:
        return [required(path)]
    if len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _MOST_BYTES:
        return [too_long(path, _MOST_BYTES)]
    if not isinstance(value, dict):
        return [invalid(path, OMITTED, "must be a valid JSON object")]
    return []


def selector_list_errors(selectors: list[Object] | None, path: str) -> list[FieldError]:
    """The errors of a list of selectors; how many there may be is a declared rule."""
    if len(selectors or []) > _MOST_SELECTORS:
        return []
    return list_errors(selectors, path, None, _selector_errors)


def _selector_errors(selector: Object, path: str) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    expression, here = cel.get("expression") or "", f"{path}.cel.expression"
    if len(expression.encode()) > _EXPRESSION_BYTES:
        return [too_long(here, _EXPRESSION_BYTES)]
    return _compile_errors(expression, here)


def _compile_errors(expression: str, path: str) -> list[FieldError]:
    # Compiling needs all of CEL; a process that checks no expression does not load it.
    from kubernetes_rules.cel.selector import SelectorInvalid, compile_selector

    try:
        compile_selector(expression)
    except SelectorInvalid as error:
        return [invalid(path, expression, f"compilation failed: {error.what}")]
    return []


def claim_status_errors(claim: Object, old: Object, path: str = "status") -> list[FieldError]:
    """The errors of the status of ``claim`` in the place of that of ``old``."""
    status, before = claim.get("status") or {}, old.get("status") or {}
    names = request_names((claim.get("spec") or {}).get("devices") or {})
    errors: list[FieldError] = []
    reserved, allocation = status.get("reservedFor") or [], status.get("allocation")
    if len(reserved) <= _MOST_RESERVED:
        errors += list_errors(reserved, f"{path}.reservedFor", None, _consumer_errors)
    allocated = {
        _device_id(result) for result in ((allocation or {}).get("devices") or {}).get("results") or []
    }
    errors += list_errors(
        status.get("devices"),
        f"{path}.devices",
        None,
        lambda item, at: _device_status_errors(item, at, allocated),
    )
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        errors.append(forbidden(f"{path}.reservedFor", text))
    elif claim["metadata"].get("deletionTimestamp"):
        earlier = before.get("reservedFor") or []
        if any(consumer not in earlier for consumer in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(forbidden(f"{path}.reservedFor", text))
    if allocation is None or before.get("allocation") is None:
        errors += _allocation_errors(allocation, f"{path}.allocation", names) if allocation else []
    elif allocation != before["allocation"]:
        # What was allocated is only ever taken away as a whole.
        errors.append(invalid(f"{path}.allocation", allocation, "field is immutable"))
        status, before = {**status, "allocation": None}, {**before, "allocation": None}
    return errors + declared_errors("ResourceClaimStatus", status, path, before)


def condition_list_errors(conditions: list[Object] | None, path: str, most: int) -> list[FieldError]:
    """The errors of conditions (metav1.Condition), of each type at most one."""
    conditions = conditions or []
    errors = [too_many(path, len(conditions), most)] if len(conditions) > most else []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        kind = condition.get("type") or ""
        if kind in seen:
            errors.append(duplicate(f"{path}[{index}]", kind))
        seen.add(kind)
        errors += _condition_errors(condition, f"{path}[{index}]")
    return errors


def _condition_errors(condition: Object, path: str) -> list[FieldError]:
    kind, status, reason, message = (
        condition.get(key) or "" for key in ("type", "status", "reason", "message")
    )
    errors = (
        all_invalid(f"{path}.type", kind, label_key(kind))
        if kind
        else [required(f"{path}.type", "is required")]
    )
    if not status:
        errors.append(required(f"{path}.status"))
    elif status not in ("False", "True", "Unknown"):
        errors.append(not_supported(f"{path}.status", status, ("False", "True", "Unknown")))
    if (condition.get("observedGeneration") or 0) < 0:
        text = "must be greater than or equal to zero"
        errors.append(invalid(f"{path}.observedGeneration", condition["observedGeneration"], text))
    if not condition.get("lastTransitionTime"):
        errors.append(required(f"{path}.lastTransitionTime"))
    if not reason:
        errors.append(required(f"{path}.reason"))
    else:
        if not _REASON.fullmatch(reason):
            text = "a condition reason must start with alphabetic character, optionally followed by a string"
            errors.append(invalid(f"{path}.reason", reason, f"{text} of alphanumeric characters or '_,:'"))
        if len(reason.encode()) > _REASON_BYTES:
            errors.append(too_long(f"{path}.reason", _REASON_BYTES))
    if len(message.encode()) > _MESSAGE_BYTES:
        errors.append(too_long(f"{path}.message", _MESSAGE_BYTES))
    return errors


def _device_id(holder: Object) -> tuple[str, ...]:
    return tuple(holder.get(key) or "" for key in ("driver", "pool", "device", "shareID"))


def _consumer_errors(consumer: Object, path: str) -> list[FieldError]:
    return [required(f"{path}.{key}") for key in ("resource", "name", "uid") if not consumer.get(key)]


def _allocation_errors(allocation: Object, path: str, names: Names) -> list[FieldError]:
    devices, here = allocation.get("devices") or {}, f"{path}.devices"
    results, config = devices.get("results") or [], devices.get("config") or []
    errors: list[FieldError] = []
    if len(results) <= _MOST_RESULTS:
        errors += list_errors(
            results, f"{here}.results", None, lambda item, at: _result_errors(item, at, names)
        )
    if len(config) <= _MOST_CONFIG:
        errors += list_errors(
            config, f"{here}.config", None, lambda item, at: _config_errors(item, at, names)
        )
    selector = allocation.get("nodeSelector")
    return errors if selector is None else errors + node_selector_errors(selector, f"{path}.nodeSelector")


def _result_errors(result: Object, path: str, names: Names) -> list[FieldError]:
    device = result.get("device") or ""
    return [
        *_reference_errors(result.get("request") or "", f"{path}.request", names),
        *driver_name_errors(result.get("driver") or "", f"{path}.driver"),
        *all_invalid(f"{path}.device", device, dns_label(device)),
        *binding_errors(result, path),
        *list_errors(result.get("tolerations"), f"{path}.tolerations", None, toleration_errors),
    ]


def _device_status_errors(device: Object, path: str, allocated: set[tuple[str, ...]]) -> list[FieldError]:
    name = device.get("device") or ""
    errors = driver_name_errors(device.get("driver") or "", f"{path}.driver")
    errors += pool_name_errors(device.get("pool") or "", f"{path}.pool")
    errors += all_invalid(f"{path}.device", name, dns_label(name))
    if _device_id(device) not in allocated:
        shown = "/".join(_device_id(device)[:3])
        errors.append(invalid(path, shown, "must be an allocated device in the claim"))
    errors += condition_list_errors(device.get("conditions"), f"{path}.conditions", _MOST_CONDITIONS)
    if device.get("data") is not None:
        errors += _raw_errors(device["data"], f"{path}.data")
    addresses = (device.get("networkData") or {}).get("ips") or []
    if len(addresses) > _MOST_ADDRESSES:
        return errors
    return errors + list_errors(addresses, f"{path}.networkData.ips", None, _address_errors)


def _address_errors(address: str, path: str) -> list[FieldError]:
    """An interface's address with the length of its prefix, in the canonical form."""
    text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    try:
        parsed = ipaddress.ip_interface(address) if "/" in address else None
    except ValueError:
        parsed = None
    if parsed is None:
        return [invalid(path, address, text)]
    if str(parsed) != address:
        return [invalid(path, address, f'must be in canonical form ("{parsed}")')]
    return []
