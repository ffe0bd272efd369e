"""The rules declared on the fields of resource.k8s.io/v1 (the +k8s tags of its types), and their evaluation.

A rule says whether a field is required, how many entries it may have, which keys its entries must not share,
which values and keys it takes, and the type of its entries. An update does not check again what is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kubernetes_rules.validation import field, names
from kubernetes_rules.validation.field import FieldError

Object = dict[str, Any]
Check = Callable[[str, str], list[FieldError]]
"""Takes a value and its path, returns its errors."""

_UUID_TEXT = "must be a lowercase UUID in 8-4-4-4-12 format"
_VALUE_BYTES = 64
_UNION = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a field, which is one value, a list or a map by its ``shape``.

    ``most`` limits the entries. ``key`` names the fields that are unique among them (empty: the entry
    itself). ``of`` is the type of the value or of each entry. A ``pointer`` in Go is checked even if its
    value is empty. ``check`` is for a text, in a list for each; ``check_key`` for each key of a map.
    """

    shape: Literal["one", "list", "map"] = "one"
    required: bool = False
    most: int | None = None
    key: tuple[str, ...] | None = None
    of: str = ""
    pointer: bool = False
    check: Check | None = None
    check_key: Check | None = None


def declared_errors(kind: str, item: Object, path: str, old: Object | None = None) -> list[FieldError]:
    """The errors of ``item``, of the type ``kind``, by the declared rules; ``old`` is its earlier value."""
    errors: list[FieldError] = []
    if kind == "DeviceAttribute":
        # Exactly one field must be set; an empty list counts as unset.
        present = [
            name for name in _UNION if (item.get(name) if name.endswith("s") else item.get(name) is not None)
        ]
        if len(present) != 1:
            shown = "{" + ", ".join(present) + "}" if present else ""
            errors.append(field.invalid(path, shown, f"must specify exactly one of: {', '.join(_UNION)}"))
    for name, rule in RULES[kind].items():
        value, before = item.get(name), None if old is None else old.get(name)
        if old is None or value != before:
            errors += _field_errors(rule, value, f"{path}.{name}" if path else name, before)
    return errors


def _field_errors(rule: Rule, value: Any, path: str, old: Any) -> list[FieldError]:
    # A field that is not a pointer in Go does not distinguish an empty value from an absent one.
    if not value and (value is None or not rule.pointer):
        return [field.required(path)] if rule.required else []
    if rule.most is not None and len(value) > rule.most:
        return [field.too_many(path, len(value), rule.most)]
    if rule.shape == "one":
        errors = rule.check(value, path) if rule.check else []
        return errors + (declared_errors(rule.of, value, path, old) if rule.of else [])
    if rule.shape == "map":
        return _map_errors(rule, value, path, old or {})
    # On an update entries are matched by key. Without a key, any change makes all entries new.
    errors = [] if rule.key is None else field.duplicate_errors(value, path, lambda item: _key_of(rule, item))
    earlier = {} if rule.key is None else {_key_of(rule, item): item for item in old or []}
    for index, item in enumerate(value):
        before = None if rule.key is None else earlier.get(_key_of(rule, item))
        if rule.check:
            errors += rule.check(item, f"{path}[{index}]")
        if rule.of and before != item:
            errors += declared_errors(rule.of, item, f"{path}[{index}]", before)
    return errors


def _map_errors(rule: Rule, value: Object, path: str, old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, item in value.items():
        if rule.check_key:
            errors += rule.check_key(key, path)
        if rule.of and old.get(key) != item:
            errors += declared_errors(rule.of, item, f"{path}[{key}]", old.get(key))
    return errors


def _key_of(rule: Rule, item: Any) -> Any:
    if not rule.key:
        return item
    found = tuple(item.get(name) or "" for name in rule.key)
    return found[0] if len(found) == 1 else found


def _format(messages: Callable[[str], list[str]]) -> Check:
    return lambda text, path: field.all_invalid(path, text, messages(text))


def _enum(*values: str) -> Check:
    return lambda text, path: [] if text in values else [field.not_supported(path, text, sorted(values))]


def _most_bytes(most: int) -> Check:
    return lambda text, path: [] if len(text.encode()) <= most else [field.too_long(path, most)]


def _driver(text: str, path: str) -> list[FieldError]:
    errors = field.all_invalid(path, text, names.dns_subdomain_caseless(text))
    return [*errors, field.too_long(path, 63)] if len(text) > 63 else errors


def _uuid(text: str, path: str) -> list[FieldError]:
    return [] if names.is_uuid(text) else [field.invalid(path, text, _UUID_TEXT)]


def _extended(text: str, path: str) -> list[FieldError]:
    return (
        []
        if names.is_extended_resource_name(text)
        else [field.invalid(path, text, "must be a valid extended resource name")]
    )


_LABEL = _format(names.dns_label)
_COUNTERS = Rule("map", required=True, check_key=_LABEL)
_REQUESTS = Rule("list", most=32, key=())
_EFFECT = _enum("None", "NoSchedule", "NoExecute")
_CONDITION_NAMES = Rule("list", most=4)
_TOLERATIONS = Rule("list", of="DeviceToleration")
_REQUEST = {
    "selectors": Rule("list", most=32),
    "allocationMode": Rule(check=_enum("All", "ExactCount")),
    "tolerations": _TOLERATIONS,
}
_CONFIGURATION = {"opaque": Rule(pointer=True, of="OpaqueDeviceConfiguration")}

RULES: dict[str, dict[str, Rule]] = {
    "ResourceSliceSpec": {
        "devices": Rule("list", of="Device"),
        "sharedCounters": Rule("list", most=8, key=("name",), of="CounterSet"),
    },
    "CounterSet": {"name": Rule(required=True, check=_LABEL), "counters": _COUNTERS},
    "Device": {
        "attributes": Rule("map", of="DeviceAttribute"),
        "consumesCounters": Rule("list", most=2, key=("counterSet",), of="DeviceCounterConsumption"),
        "taints": Rule("list", of="DeviceTaint"),
        "bindingConditions": _CONDITION_NAMES,
        "bindingFailureConditions": _CONDITION_NAMES,
    },
    "DeviceAttribute": {"strings": Rule("list", check=_most_bytes(_VALUE_BYTES))},
    "DeviceCounterConsumption": {"counterSet": Rule(required=True, check=_LABEL), "counters": _COUNTERS},
    "DeviceTaint": {"effect": Rule(required=True, check=_EFFECT)},
    "DeviceTaintRuleSpec": {"taint": Rule(pointer=True, of="DeviceTaint")},
    "DeviceClassSpec": {
        "selectors": Rule("list", most=32),
        "config": Rule("list", most=32, of="DeviceConfiguration"),
        "extendedResourceName": Rule(pointer=True, check=_extended),
    },
    "DeviceConfiguration": _CONFIGURATION,
    "OpaqueDeviceConfiguration": {"driver": Rule(required=True, check=_driver)},
    "ResourceClaimSpec": {"devices": Rule(pointer=True, of="DeviceClaim")},
    "DeviceClaim": {
        "requests": Rule("list", most=32, key=("name",), of="DeviceRequest"),
        "constraints": Rule("list", most=32, of="DeviceConstraint"),
        "config": Rule("list", most=32, of="DeviceClaimConfiguration"),
    },
    "DeviceRequest": {
        "exactly": Rule(pointer=True, of="ExactDeviceRequest"),
        "firstAvailable": Rule("list", most=8, key=("name",), of="DeviceSubRequest"),
    },
    "ExactDeviceRequest": _REQUEST,
    "DeviceSubRequest": {
        **_REQUEST,
        "deviceClassName": Rule(required=True, check=_format(names.dns_subdomain)),
    },
    "DeviceToleration": {
        "key": Rule(check=_format(names.label_key)),
        "operator": Rule(check=_enum("Equal", "Exists")),
        "effect": Rule(check=_EFFECT),
    },
    "DeviceConstraint": {
        "requests": _REQUESTS,
        "matchAttribute": Rule(pointer=True, check=names.fully_qualified_name_errors),
        "distinctAttribute": Rule(pointer=True, check=names.fully_qualified_name_errors),
    },
    "DeviceClaimConfiguration": {"requests": _REQUESTS, **_CONFIGURATION},
    "ResourceClaimStatus": {
        "allocation": Rule(pointer=True, of="AllocationResult"),
        "reservedFor": Rule("list", most=256, key=("uid",)),
        "devices": Rule("list", key=("driver", "device", "pool", "shareID"), of="AllocatedDeviceStatus"),
    },
    "AllocationResult": {"devices": Rule(pointer=True, of="DeviceAllocationResult")},
    "DeviceAllocationResult": {
        "results": Rule("list", most=32, of="DeviceRequestAllocationResult"),
        "config": Rule("list", most=64, of="DeviceAllocationConfiguration"),
    },
    "DeviceRequestAllocationResult": {
        "driver": Rule(required=True, check=_driver),
        "pool": Rule(required=True, check=names.pool_name_errors),
        "tolerations": _TOLERATIONS,
        "bindingConditions": _CONDITION_NAMES,
        "bindingFailureConditions": _CONDITION_NAMES,
        "shareID": Rule(pointer=True, check=_uuid),
    },
    "DeviceAllocationConfiguration": {
        "source": Rule(required=True, check=_enum("FromClass", "FromClaim")),
        "requests": _REQUESTS,
        **_CONFIGURATION,
    },
    "AllocatedDeviceStatus": {
        "shareID": Rule(pointer=True, check=_uuid),
        "networkData": Rule(pointer=True, of="NetworkDeviceData"),
    },
    "NetworkDeviceData": {
        "interfaceName": Rule(check=_most_bytes(256)),
        "ips": Rule("list", most=16, key=()),
        "hardwareAddress": Rule(check=_most_bytes(128)),
    },
}
