"""Checks one device of a ResourceSlice, and the request policies of its capacity."""

from __future__ import annotations

import itertools
import re
from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation import field
from kubernetes_rules.validation.field import FieldError
from kubernetes_rules.validation.names import dns_label, label_key, qualified_name_errors
from kubernetes_rules.validation.node_selector import node_name_errors, node_selector_errors
from kubernetes_rules.validation.taints import taint_errors

Object = dict[str, Any]

# ResourceSliceMaxAttributesAndCapacitiesPerDevice and DeviceAttributeMaxValueLength; the values of all
# attributes, lists included, are limited too.
_MOST_ENTRIES = 32
_MOST_VALUES = 48
_VALUE_BYTES = 64
# A domain, a slash and an identifier: the longest key that an error message shows in full.
_NAME_BYTES = 63 + 1 + 32
_MOST_TAINTS = 16
_MOST_CONDITIONS = 4
_MOST_CONSUMED_SETS = 2
_MOST_COUNTERS = 32

_LISTS = ("bools", "ints", "strings", "versions")

_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)

_MOST_OPTIONS = 10
_MOST_INT64 = 2**63 - 1


def device_errors(device: Object, old: Object | None, path: str, *, own_nodes: bool) -> list[FieldError]:
    """The errors of a device beside those of the declared rules.

    ``old`` is the device of that name before an update; unchanged capacity and taints are not checked again.
    ``own_nodes``: the slice has perDeviceNodeSelection.
    """
    name = device.get("name") or ""
    errors = field.all_invalid(f"{path}.name", name, dns_label(name)) + _size_errors(device, path)
    errors += field.map_errors(
        device.get("attributes"), f"{path}.attributes", qualified_name_errors, _attribute_errors, _NAME_BYTES
    )
    if old is None or old.get("capacity") != device.get("capacity"):
        shareable = device.get("allowMultipleAllocations") is True
        errors += field.map_errors(
            device.get("capacity"),
            f"{path}.capacity",
            qualified_name_errors,
            lambda value, here: _capacity_errors(value or {}, here, shareable=shareable),
            _NAME_BYTES,
        )
    if old is None or old.get("taints") != device.get("taints"):
        errors += field.list_errors(device.get("taints"), f"{path}.taints", taint_errors, most=_MOST_TAINTS)
    errors += _consumption_errors(device.get("consumesCounters") or [], f"{path}.consumesCounters")
    errors += _node_errors(device, path, own_nodes=own_nodes)
    return errors + binding_errors(device, path)


def counter_map_errors(counters: Object | None, path: str) -> list[FieldError]:
    """The errors of the number of counters in a set; a declared rule checks their names."""
    count = len(counters or {})
    return [field.too_many(path, count, _MOST_COUNTERS)] if count > _MOST_COUNTERS else []


def binding_errors(holder: Object, path: str) -> list[FieldError]:
    """The errors of the binding conditions of a device, or of an allocation result, which copies them."""

    def check(text: str, here: str) -> list[FieldError]:
        return field.all_invalid(here, text, label_key(text))

    good, bad = (holder.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions"))
    errors: list[FieldError] = []
    for name, names in (("bindingConditions", good), ("bindingFailureConditions", bad)):
        if len(names) <= _MOST_CONDITIONS:
            errors += field.list_errors(names, f"{path}.{name}", check)
        errors += [
            field.duplicate(f"{path}.{name}[{index}]", text)
            for index, text in enumerate(names)
            if text in names[:index]
        ]
    for index, text in enumerate(bad):
        if text in good:
            rule = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(field.invalid(f"{path}.bindingFailureConditions[{index}]", text, rule))
    if bad and not good:
        rule = "bindingConditions are required to use bindingFailureConditions"
        errors.append(field.invalid(f"{path}.bindingConditions", good, rule))
    if good and not bad:
        rule = "bindingFailureConditions are required to use bindingConditions"
        errors.append(field.invalid(f"{path}.bindingFailureConditions", bad, rule))
    return errors


def _size_errors(device: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    entries = len(attributes) + len(capacity)
    if entries > _MOST_ENTRIES:
        text = f"the total number of attributes and capacities must not exceed {_MOST_ENTRIES}"
        errors.append(field.invalid(path, entries, text))
    values = sum(
        sum(len((attribute or {}).get(name) or []) for name in _LISTS) or 1
        for attribute in attributes.values()
    )
    if values > _MOST_VALUES:
        text = f"the total number of attribute values must not exceed {_MOST_VALUES}"
        errors.append(field.invalid(path, values, text))
    return errors


def _attribute_errors(attribute: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    attribute = attribute or {}
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _VALUE_BYTES:
        errors.append(field.too_long(f"{path}.string", _VALUE_BYTES))
    if version is not None:
        errors += _version_errors(version, f"{path}.version")
    for name in _LISTS:
        if attribute.get(name) == []:
            errors.append(field.invalid(f"{path}.{name}", [], "must not be empty if specified"))
    for index, item in enumerate(attribute.get("versions") or []):
        errors += _version_errors(item, f"{path}.versions[{index}]")
    return errors


def _version_errors(version: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not _SEMVER.fullmatch(version):
        errors.append(field.invalid(path, version, "must be a string compatible with semver.org spec 2.0.0"))
    if len(version.encode()) > _VALUE_BYTES:
        errors.append(field.too_long(path, _VALUE_BYTES))
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
        return [field.invalid(path, None, text)]
    errors: list[FieldError] = []
    if name:
        errors += node_name_errors(name, f"{path}.nodeName")
    elif name is not None:
        errors.append(field.invalid(f"{path}.nodeName", "", "must not be empty"))
    if selector is not None:
        errors += node_selector_errors(selector, f"{path}.nodeSelector")
    if everywhere is False:
        errors.append(field.invalid(f"{path}.allNodes", everywhere, "must be either unset or set to true"))
    given = {"nodeName": bool(name), "nodeSelector": selector is not None, "allNodes": everywhere is True}
    chosen = [f"`{key}`" for key, is_set in given.items() if is_set]
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
        "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not chosen:
        errors.append(field.required(path, text))
    elif len(chosen) > 1:
        errors.append(field.invalid(path, "{" + ", ".join(chosen) + "}", text))
    return errors


def _capacity_errors(capacity: Object, path: str, *, shareable: bool) -> list[FieldError]:
    """The errors of one DeviceCapacity; ``shareable`` is the device's allowMultipleAllocations."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    here = f"{path}.requestPolicy"
    if not shareable:
        return [field.forbidden(here, "allowMultipleAllocations must be true")]
    values, span = policy.get("validValues") or [], policy.get("validRange")
    if values and span is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        return [field.forbidden(here, text)]
    kind = "validValues" if values else "validRange" if span is not None else None
    if kind is None:
        return []
    if policy.get("default") is None:
        return [field.required(f"{here}.default", f"required when {kind} is defined")]
    default, most = _quantity(policy["default"]), _quantity(capacity.get("value"))
    if values:
        return _options_errors(default, most, [_quantity(value) for value in values], f"{here}.validValues")
    return _range_errors(default, most, span, f"{here}.validRange")


def _quantity(text: Any) -> Quantity:
    """A quantity as Go decodes it: absent is 0, and a JSON number is read as its text."""
    return Quantity.parse("0" if text is None else str(text))


def _options_errors(default: Quantity, most: Quantity, values: list[Quantity], path: str) -> list[FieldError]:
    errors = [
        field.invalid(f"{path}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (value, after) in enumerate(itertools.pairwise(values))
        if value.value > after.value
    ]

    def check(option: Quantity, here: str) -> list[FieldError]:
        if option.value <= most.value:
            return []
        return [field.invalid(here, str(option), f"option is larger than capacity value: {most}")]

    # Options are duplicates if their integer values are the same.
    errors += field.list_errors(
        values, path, check, most=_MOST_OPTIONS, key=lambda option: str(option.scaled(0))
    )
    found = len(values) <= _MOST_OPTIONS and any(value.value == default.value for value in values)
    if not found:
        errors.append(
            field.invalid(path, str(default), "default value is not valid according to the requestPolicy")
        )
    return errors


def _range_errors(default: Quantity, most: Quantity, span: Object, path: str) -> list[FieldError]:
    low, high, step = (
        None if span.get(name) is None else _quantity(span[name]) for name in ("min", "max", "step")
    )
    if low is None:
        return [field.required(f"{path}.min", "required when validRange is defined")]
    errors: list[FieldError] = []

    def check(wrong: bool, name: str, value: Quantity, text: str) -> None:
        if wrong:
            errors.append(field.invalid(f"{path}.{name}", str(value), text))

    check(low.value > most.value, "min", low, f"min is larger than capacity value: {most}")
    check(default.value < low.value, "default", default, f"default is less than min: {low}")
    if high is not None:
        check(low.value > high.value, "max", low, f"min is larger than max: {high}")
        check(high.value > most.value, "max", high, f"max is larger than capacity value: {most}")
        check(default.value > high.value, "default", default, f"default is more than max: {high}")
    if step is not None:
        errors += _step_errors(default, most, low, high, step, path)
    return errors


def _step_errors(
    default: Quantity, most: Quantity, low: Quantity, high: Quantity | None, step: Quantity, path: str
) -> list[FieldError]:
    here = f"{path}.step"
    if step.value <= 0:
        return [field.invalid(here, str(step), "must be greater than zero")]
    errors: list[FieldError] = []
    first = low.plus(step)
    if first.value > most.value:
        errors.append(
            field.invalid(here, str(step), f"one step {first} is larger than capacity value: {most}")
        )
    # The multiples of the step are computed with int64, so all of these have to fit.
    named = {"default": default, "min": low, "max": high, "step": step}
    unsafe: list[FieldError] = []
    for name, value in named.items():
        if value is None:
            continue
        if value.value < 0:
            unsafe.append(field.invalid(f"{path}.{name}", str(value), "must be greater than or equal to 0"))
        elif value.value > _MOST_INT64:
            unsafe.append(
                field.invalid(f"{path}.{name}", str(value), f"must not be larger than {_MOST_INT64}")
            )
    if unsafe:
        return errors + unsafe
    for value in (default, high):
        if value is not None and (value.scaled(0) - low.scaled(0)) % step.scaled(0):
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            errors.append(field.invalid(here, str(value), text))
    return errors
