"""Checks what may be requested of a device's capacity: the request policy and its numbers."""

from __future__ import annotations

import itertools
from typing import Any

from kubernetes_rules.quantity import Quantity
from kubernetes_rules.validation.errors import FieldError, forbidden, invalid, required
from kubernetes_rules.validation.lists import list_errors

Object = dict[str, Any]

_MOST_OPTIONS = 10
_MOST_INT64 = 2**63 - 1


def capacity_errors(capacity: Object, path: str, *, shareable: bool) -> list[FieldError]:
    """The errors of one DeviceCapacity; only a device that many may hold has request policies."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    here = f"{path}.requestPolicy"
    if not shareable:
        return [forbidden(here, "allowMultipleAllocations must be true")]
    values, span = policy.get("validValues") or [], policy.get("validRange")
    if values and span is not None:
        text = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" '
            "at the same time"
        )
        return [forbidden(here, text)]
    kind = "validValues" if values else "validRange" if span is not None else None
    if kind is None:
        return []
    if policy.get("default") is None:
        return [required(f"{here}.default", f"required when {kind} is defined")]
    default, most = _quantity(policy["default"]), _quantity(capacity.get("value"))
    if values:
        return _options_errors(default, most, [_quantity(value) for value in values], f"{here}.validValues")
    return _range_errors(default, most, span, f"{here}.validRange")


def _quantity(text: Any) -> Quantity:
    """A decoded quantity: absent is 0, a bare number is its text."""
    return Quantity.parse("0" if text is None else str(text))


def _options_errors(default: Quantity, most: Quantity, values: list[Quantity], path: str) -> list[FieldError]:
    errors = [
        invalid(f"{path}[{index + 1}]", str(after), "values must be sorted in ascending order")
        for index, (value, after) in enumerate(itertools.pairwise(values))
        if value.value > after.value
    ]

    def check(option: Quantity, here: str) -> list[FieldError]:
        if option.value <= most.value:
            return []
        return [invalid(here, str(option), f"option is larger than capacity value: {most}")]

    errors += list_errors(values, path, _MOST_OPTIONS, check, lambda option: str(option.scaled(0)))
    found = len(values) <= _MOST_OPTIONS and any(value.value == default.value for value in values)
    if not found:
        errors.append(
            invalid(path, str(default), "default value is not valid according to the requestPolicy")
        )
    return errors


def _range_errors(default: Quantity, most: Quantity, span: Object, path: str) -> list[FieldError]:
    low, high, step = (
        None if span.get(name) is None else _quantity(span[name]) for name in ("min", "max", "step")
    )
    if low is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    errors: list[FieldError] = []

    def check(wrong: bool, name: str, value: Quantity, text: str) -> None:
        if wrong:
            errors.append(invalid(f"{path}.{name}", str(value), text))

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
        return [invalid(here, str(step), "must be greater than zero")]
    errors: list[FieldError] = []
    first = low.plus(step)
    if first.value > most.value:
        errors.append(invalid(here, str(step), f"one step {first} is larger than capacity value: {most}"))
    named = {"default": default, "min": low, "max": high, "step": step}
    unsafe: list[FieldError] = []
    for name, value in named.items():
        if value is None:
            continue
        if value.value < 0:
            unsafe.append(invalid(f"{path}.{name}", str(value), "must be greater than or equal to 0"))
        elif value.value > _MOST_INT64:
            unsafe.append(invalid(f"{path}.{name}", str(value), f"must not be larger than {_MOST_INT64}"))
    if unsafe:
        return errors + unsafe
    for value in (default, high):
        if value is not None and (value.scaled(0) - low.scaled(0)) % step.scaled(0):
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            errors.append(invalid(here, str(value), text))
    return errors
