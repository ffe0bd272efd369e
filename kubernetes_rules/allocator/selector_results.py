"""Evaluates the selectors of requests on devices, each expression once per distinct content."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable

from kubernetes_rules.allocator.published import Device, Json
from kubernetes_rules.cel.selector import SelectorDevice, SelectorFailed, SelectorInvalid, compile_selector
from kubernetes_rules.errors import AllocationFailed, RuleError


class Unanswered(AllocationFailed):
    """A selector failed on one device; ``reason`` is the message without the device's name."""

    def __init__(self, device: Device, error: SelectorFailed) -> None:
        super().__init__(f"device {device.id}: {error.what}", error.way_out)
        self.reason = error.what


def selector_device(device: Device) -> SelectorDevice:
    """The device as selectors see it."""
    return SelectorDevice(device.id.driver, *_seen_of(device))


class SelectorResults:
    """Which devices match which expressions; each is evaluated once for devices that it cannot tell apart."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answers] = {}
        # By the address of the device's object, which has to be kept for that.
        self._ordinary: dict[int, tuple[Json, bool]] = {}

    def first_false(self, device: Device, expressions: Iterable[str]) -> str | None:
        """The first expression that is false for the device, None if all hold.

        Raises AllocationFailed for an expression that cannot be compiled or evaluated.
        """
        # Classes test ``device.driver`` first, so expressions after a false one must not be evaluated: on a
        # device of another driver they may fail, and any failure fails the pod on all nodes.
        for expression in expressions:
            result = self._answers_of(expression).of(device, ordinary=self._is_ordinary(device))
            if result is False:
                return expression
            if result is not True:
                raise result
        return None

    def false_parts(self, device: Device, expression: str) -> tuple[str, ...]:
        """The terms joined by ``&&`` that are not true of the device; all of it if that cannot be said."""
        return self._answers_of(expression).false_parts(device, ordinary=self._is_ordinary(device))

    def _answers_of(self, expression: str) -> _Answers:
        known = self._answers.get(expression)
        if known is None:
            known = self._answers[expression] = _Answers(expression)
        return known

    def _is_ordinary(self, device: Device) -> bool:
        known = self._ordinary.get(id(device.spec))
        if known is None:
            from kubernetes_rules.cel.device import is_ordinary

            attributes, capacity, _ = _seen_of(device)
            known = self._ordinary[id(device.spec)] = device.spec, is_ordinary(attributes, capacity)
        return known[1]


class _Answers:
    """The answers of one expression."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._by_content: dict[str, bool | AllocationFailed] = {}
        self._by_reads: dict[Hashable, bool] = {}
        self._false_parts: dict[Hashable, tuple[str, ...]] = {}
        try:
            self._reads = compile_selector(expression).reads
        except SelectorInvalid:
            self._reads = None

    def of(self, device: Device, *, ordinary: bool) -> bool | AllocationFailed:
        """Whether the device matches, or why that cannot be said; ``ordinary``: see ``is_ordinary``."""
        what = self._what_is_read(device) if ordinary else None
        answer = None if what is None else self._by_reads.get(what)
        if answer is not None:
            return answer
        # An error, or its way out, may name more of the device than what the expression reads.
        content = json.dumps((device.id.driver, _seen_of(device)), sort_keys=True)
        result = self._by_content.get(content)
        if result is None:
            result = self._by_content[content] = _evaluate(self._expression, device)
        if what is not None and isinstance(result, bool):
            self._by_reads[what] = result
            del self._by_content[content]
        return result

    def false_parts(self, device: Device, *, ordinary: bool) -> tuple[str, ...]:
        """See ``SelectorResults.false_parts``."""
        what = self._what_is_read(device) if ordinary else None
        parts = self._false_parts.get(what) if what is not None else None
        if parts is None:
            try:
                parts = compile_selector(self._expression).false_parts(selector_device(device))
            except RuleError:
                parts = ()
            parts = parts or (self._expression,)
            if what is not None:
                self._false_parts[what] = parts
        return parts

    def _what_is_read(self, device: Device) -> Hashable:
        """The part of the device that decides, None if it may be anything."""
        if self._reads is None:
            return None
        attributes, capacity, shared = _seen_of(device)
        driver = device.id.driver
        found: list[Hashable] = [driver, shared]
        for field, domain, name in self._reads:
            table = attributes if field == "attributes" else capacity
            value = table.get(f"{domain}/{name}")
            if domain == driver and name in table:
                # Both names mean the same, and which of them counts depends on their order.
                if value is not None:
                    return None
                value = table[name]
            found.append(None if value is None else repr(value))
        return tuple(found)


def _seen_of(device: Device) -> tuple[Json, Json, bool]:
    return device.attributes, device.spec.get("capacity") or {}, device.allow_multiple


def _evaluate(expression: str, device: Device) -> bool | AllocationFailed:
    try:
        return compile_selector(expression).matches(selector_device(device))
    except SelectorInvalid as error:
        return AllocationFailed(
            f"the selector {expression!r} is no CEL expression: {error.what}", error.way_out
        )
    except SelectorFailed as error:
        return Unanswered(device, error)
