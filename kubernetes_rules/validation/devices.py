"""Checks one device of a ResourceSlice."""

from __future__ import annotations

import re
from typing import Any

from kubernetes_rules.validation.capacity import capacity_errors
from kubernetes_rules.validation.errors import FieldError, all_invalid, duplicate, invalid, required, too_long
from kubernetes_rules.validation.lists import list_errors, map_errors
from kubernetes_rules.validation.names import dns_label, label_key, qualified_name_errors
from kubernetes_rules.validation.node_selector import node_name_errors, node_selector_errors
from kubernetes_rules.validation.taints import taint_errors

Object = dict[str, Any]

_MOST_ENTRIES = 32
_MOST_VALUES = 48
_VALUE_BYTES = 64
_NAME_BYTES = 63 + 1 + 32
_MOST_TAINTS = 16
_MOST_CONDITIONS = 4
_MOST_CONSUMED_SETS = 2
_MOST_COUNTERS = 32
_COUNTER_NAME_BYTES = 63
_LISTS = ("bools", "ints", "strings", "versions")

_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)


def device_errors(device: Object, old: Object | None, path: str, *, own_nodes: bool) -> list[FieldError]:
    """The errors of a device beside those of the declared rules.

    ``old`` is the device of that name before an update: what has not changed of its capacity and its taints
    is not checked again. ``own_nodes`` tells that each device of the slice says for which nodes it is.
    """
    name = device.get("name") or ""
    errors = all_invalid(f"{path}.name", name, dns_label(name)) + _size_errors(device, path)
    errors += map_errors(
        device.get("attributes"),
        f"{path}.attributes",
        None,
        qualified_name_errors,
        _attribute_errors,
        _NAME_BYTES,
    )
    if old is None or old.get("capacity") != device.get("capacity"):
        shareable = device.get("allowMultipleAllocations") is True
        errors += map_errors(
            device.get("capacity"),
            f"{path}.capacity",
            None,
            qualified_name_errors,
            lambda value, here: capacity_errors(value or {}, here, shareable=shareable),
            _NAME_BYTES,
        )
    if old is None or old.get("taints") != device.get("taints"):
        errors += list_errors(device.get("taints"), f"{path}.taints", _MOST_TAINTS, taint_errors)
    errors += _consumption_errors(device.get("consumesCounters") or [], f"{path}.consumesCounters")
    errors += _node_errors(device, path, own_nodes=own_nodes)
    return errors + binding_errors(device, path)


def counter_map_errors(counters: Object | None, path: str) -> list[FieldError]:
    """The errors of the counters of a set: how many there are; their names have a declared rule."""
    return map_errors(
        counters, path, _MOST_COUNTERS, lambda _key, _path: [], lambda _item, _path: [], _COUNTER_NAME_BYTES
    )


def binding_errors(holder: Object, path: str) -> list[FieldError]:
    """The errors of the binding conditions of a device, or of the result that copies them."""

    def check(text: str, here: str) -> list[FieldError]:
        return all_invalid(here, text, label_key(text))

    good, bad = (holder.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions"))
    errors: list[FieldError] = []
    for name, names in (("bindingConditions", good), ("bindingFailureConditions", bad)):
        if len(names) <= _MOST_CONDITIONS:
            errors += list_errors(names, f"{path}.{name}", None, check)
        errors += [
            duplicate(f"{path}.{name}[{index}]", text)
            for index, text in enumerate(names)
            if text in names[:index]
        ]
    for index, text in enumerate(bad):
        if text in good:
            rule = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid(f"{path}.bindingFailureConditions[{index}]", text, rule))
    if bad and not good:
        rule = "bindingConditions are required to use bindingFailureConditions"
        errors.append(invalid(f"{path}.bindingConditions", good, rule))
    if good and not bad:
        rule = "bindingFailureConditions are required to use bindingConditions"
        errors.append(invalid(f"{path}.bindingFailureConditions", bad, rule))
    return errors


def _size_errors(device: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    entries = len(attributes) + len(capacity)
    if entries > _MOST_ENTRIES:
        text = f"the total number of attributes and capacities must not exceed {_MOST_ENTRIES}"
        errors.append(invalid(path, entries, text))
    values = sum(
        sum(len((attribute or {}).get(name) or []) for name in _LISTS) or 1
        for attribute in attributes.values()
    )
    if values > _MOST_VALUES:
        text = f"the total number of attribute values must not exceed {_MOST_VALUES}"
        errors.append(invalid(path, values, text))
    return errors


def _attribute_errors(attribute: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    attribute = attribute or {}
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _VALUE_BYTES:
        errors.append(too_long(f"{path}.string", _VALUE_BYTES))
    if version is not None:
        errors += _version_errors(version, f"{path}.version")
    for name in _LISTS:
        if attribute.get(name) == []:
            errors.append(invalid(f"{path}.{name}", [], "must not be empty if specified"))
    for index, item in enumerate(attribute.get("versions") or []):
        errors += _version_errors(item, f"{path}.versions[{index}]")
    return errors


def _version_errors(version: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not _SEMVER.fullmatch(version):
        errors.append(invalid(path, version, "must be a string compatible with semver.org spec 2.0.0"))
    if len(version.encode()) > _VALUE_BYTES:
        errors.append(too_long(path, _VALUE_BYTES))
    return errors


def _consumption_errors(sets: list[Object], path: str) -> list[FieldError]:
    if len(sets) > _MOST_CONSUMED_SETS:
        return []
    errors: list[FieldError] = []
    for index, consumed in enumerate(sets):
        errors += counter_map_errors(consumed.get("counters"), f"{path}[{index}].counters")
    return errors


def _node_errors(device: Object, path: str, *, own_nodes: bool) -> list[FieldError]:
    name, selector, everywhere = (device.get(key) for key in ("nodeName", "nodeSelector", "allNodes"))
    if not own_nodes:
        if name is None and selector is None and everywhere is None:
            return []
        text = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to "
            "true in the ResourceSlice spec"
        )
        return [invalid(path, None, text)]
    errors: list[FieldError] = []
    if name:
        errors += node_name_errors(name, f"{path}.nodeName")
    elif name is not None:
        errors.append(invalid(f"{path}.nodeName", "", "must not be empty"))
    if selector is not None:
        errors += node_selector_errors(selector, f"{path}.nodeSelector")
    if everywhere is False:
        errors.append(invalid(f"{path}.allNodes", everywhere, "must be either unset or set to true"))
    given = {"nodeName": bool(name), "nodeSelector": selector is not None, "allNodes": everywhere is True}
    chosen = [f"`{key}`" for key, is_set in given.items() if is_set]
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
        "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not chosen:
        errors.append(required(path, text))
    elif len(chosen) > 1:
        errors.append(invalid(path, "{" + ", ".join(chosen) + "}", text))
    return errors
