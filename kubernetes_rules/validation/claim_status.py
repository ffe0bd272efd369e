"""Checks the status of a ResourceClaim when it is written: allocation, reservations and device statuses."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from kubernetes_rules.validation.claims import Names, config_errors, reference_errors, request_names
from kubernetes_rules.validation.declared import declared_errors
from kubernetes_rules.validation.devices import binding_errors
from kubernetes_rules.validation.errors import (
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
from kubernetes_rules.validation.names import dns_label, driver_name_errors, label_key, pool_name_errors
from kubernetes_rules.validation.node_selector import node_selector_errors
from kubernetes_rules.validation.opaque import raw_errors
from kubernetes_rules.validation.taints import toleration_errors

Object = dict[str, Any]

_MOST_RESULTS = 32
_MOST_CONFIG = 64
_MOST_RESERVED = 256
_MOST_CONDITIONS = 8
_MOST_ADDRESSES = 16
_REASON_BYTES = 1024
_MESSAGE_BYTES = 32 * 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


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
        errors += list_errors(config, f"{here}.config", None, lambda item, at: config_errors(item, at, names))
    selector = allocation.get("nodeSelector")
    return errors if selector is None else errors + node_selector_errors(selector, f"{path}.nodeSelector")


def _result_errors(result: Object, path: str, names: Names) -> list[FieldError]:
    device = result.get("device") or ""
    return [
        *reference_errors(result.get("request") or "", f"{path}.request", names),
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
        errors += raw_errors(device["data"], f"{path}.data")
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
