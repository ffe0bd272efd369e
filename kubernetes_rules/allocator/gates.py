"""Gates that judge one device for one request by themselves, each with its reason as data."""

from __future__ import annotations

from collections.abc import Iterable

from kubernetes_rules.allocator.failure import AllocationFailed
from kubernetes_rules.allocator.published import Device, Json
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector

_BLOCKING = ("NoSchedule", "NoExecute")


def untolerated_taint(device: Device, tolerations: Iterable[Json]) -> Json | None:
    """The first taint that keeps the device from being allocated; effects other than two are ignored."""
    for taint in device.taints:
        if taint.get("effect") in _BLOCKING and not any(tolerates(one, taint) for one in tolerations):
            return taint
    return None


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a DeviceToleration covers a DeviceTaint; no key or no effect means any."""
    for field in ("effect", "key"):
        if toleration.get(field) and toleration[field] != (taint.get(field) or ""):
            return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return operator == "Exists"


def selector_device(device: Device) -> SelectorDevice:
    """The device as selectors see it."""
    return SelectorDevice(
        device.id.driver, device.attributes, device.spec.get("capacity") or {}, device.allow_multiple
    )


class SelectorResults:
    """Remembers what selectors say of devices: each expression is asked once per distinct content."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, bool | AllocationFailed]] = {}

    def first_false(self, device: Device, expressions: Iterable[str]) -> str | None:
        """The first expression that is false for the device, None if all hold; later ones are not asked.

        Raises AllocationFailed for an expression that cannot be compiled or evaluated.
        """
        for expression in expressions:
            known = self._results.setdefault(expression, {})
            result = known.get(device.content)
            if result is None:
                result = known[device.content] = _evaluate(expression, device)
            if result is False:
                return expression
            if result is not True:
                raise result
        return None


def _evaluate(expression: str, device: Device) -> bool | AllocationFailed:
    try:
        return compile_selector(expression).matches(selector_device(device))
    except SelectorInvalid as error:
        return AllocationFailed(
            f"the selector {expression!r} is no CEL expression: {error.what}", error.way_out
        )
    except SelectorFailed as error:
        return AllocationFailed(
            f"the selector {expression!r} fails on device {device.id}: {error.what}",
            error.way_out or "test for what may be absent, with .? or has()",
        )
