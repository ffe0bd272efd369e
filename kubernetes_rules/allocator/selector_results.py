"""Evaluates the selectors of requests on devices, each expression once per distinct content."""

from __future__ import annotations

from collections.abc import Iterable

from kubernetes_rules.allocator.published import Device
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector
from kubernetes_rules.errors import AllocationFailed


class Unanswered(AllocationFailed):
    """A selector failed on one device; ``reason`` is the message without the device's name."""

    def __init__(self, device: Device, error: SelectorFailed) -> None:
        super().__init__(f"device {device.id}: {error.what}", error.way_out)
        self.reason = error.what


def selector_device(device: Device) -> SelectorDevice:
    """The device as selectors see it."""
    return SelectorDevice(
        device.id.driver, device.attributes, device.spec.get("capacity") or {}, device.allow_multiple
    )


class SelectorResults:
    """Which devices match which expressions; each expression is evaluated once per distinct content."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, bool | AllocationFailed]] = {}

    def first_false(self, device: Device, expressions: Iterable[str]) -> str | None:
        """The first expression that is false for the device, None if all hold.

        Raises AllocationFailed for an expression that cannot be compiled or evaluated.
        """
        # Classes test ``device.driver`` first, so expressions after a false one must not be evaluated: on a
        # device of another driver they may fail, and any failure fails the pod on all nodes.
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
        return Unanswered(device, error)
