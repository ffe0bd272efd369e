"""Device selectors: CEL expressions on one device, as the Kubernetes scheduler evaluates them.

The environment is that of k8s.io/dynamic-resource-allocation/cel for stored expressions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kubernetes_rules.errors import RuleError

if TYPE_CHECKING:
    from kubernetes_rules.cel.program import Evaluation, Program


class SelectorInvalid(RuleError):
    """An expression is not a valid selector; the API server refuses objects with it."""

    retryable = False


class SelectorFailed(RuleError):
    """A selector fails on a device, for which the scheduler fails the pod on all nodes."""

    retryable = False


class TooCostly(Exception):
    """One answer took more processor time than ``selectors_within`` or ``answer_within`` allows.

    ``expression`` is the selector that took most of it, empty if there was none. This is not a RuleError, so
    nothing takes it for a verdict on a device or a node.
    """

    def __init__(self, what: str, seconds: float, expression: str) -> None:
        super().__init__(f"{what} takes more than {seconds:g} s of processor time")
        self.expression = expression


@dataclass(slots=True)
class _Budget:
    """``until`` is the processor time by which the answer has to be there; None: only selectors count."""

    seconds: float
    left_seconds: float
    until: float | None = None
    spent_seconds: dict[str, float] = field(default_factory=dict)
    """The processor time of each selector."""

    def check(self, expression: str = "") -> None:
        """Raises TooCostly if nothing is left; ``expression`` is blamed if no selector took any time."""
        in_all = self.until is not None and time.thread_time() >= self.until
        if in_all or self.left_seconds <= 0:
            most = max(self.spent_seconds, key=self.spent_seconds.__getitem__, default=expression)
            raise TooCostly("the answer" if in_all else "evaluating selectors", self.seconds, most)


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextmanager
def selectors_within(seconds: float) -> Iterator[None]:
    """Limit the processor time of all selectors of this thread together; past it they raise TooCostly.

    Kubernetes accepts a selector that costs up to a million units for each device: 0.3 s here, which a node
    of a hundred devices turns into half a minute.
    """
    token = _budget.set(_Budget(seconds, seconds))
    try:
        yield
    finally:
        _budget.reset(token)


@contextmanager
def answer_within(seconds: float) -> Iterator[None]:
    """Limit the processor time of one answer; past it ``check_time`` and selectors raise TooCostly."""
    token = _budget.set(_Budget(seconds, seconds, time.thread_time() + seconds))
    try:
        yield
    finally:
        _budget.reset(token)


def check_time() -> None:
    """Raises TooCostly if the answer that is being worked out has taken its time."""
    budget = _budget.get()
    if budget is not None:
        budget.check()


@dataclass(frozen=True, slots=True)
class SelectorDevice:
    """What a selector can see of a device; its name, pool and node are not part of it.

    ``attributes`` and ``capacity`` are the JSON of a device in a ResourceSlice:
    ``{"model": {"string": "H100"}}``, ``{"memory": {"value": "80Gi"}}``.
    """

    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Any]]
    allow_multiple_allocations: bool = False
    _values: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def values(self) -> dict[str, Any]:
        """The value of ``device``. Raises SelectorFailed for an attribute of an unknown kind."""
        if not self._values:
            from kubernetes_rules.cel.program import device_value
            from kubernetes_rules.cel.types import CelError

            try:
                value = device_value(
                    self.driver,
                    self.attributes,
                    self.capacity,
                    allow_multiple_allocations=self.allow_multiple_allocations,
                )
            except (CelError, KeyError) as error:
                raise SelectorFailed(
                    f"a device of driver {self.driver} cannot be evaluated: {error}",
                    "correct its ResourceSlice",
                ) from error
            self._values.append(value)
        return self._values[0]


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. Thread-safe."""

    expression: str
    _program: Program = field(repr=False)
    _no_value: type[Exception] = field(repr=False)

    @property
    def reads(self) -> frozenset[tuple[str, str, str]] | None:
        """The attributes and capacities by which it decides; see ``syntax.names_read``."""
        return self._program.reads

    def matches(self, device: SelectorDevice) -> bool:
        """Whether the selector selects the device.

        Raises SelectorFailed for a missing key that was not tested for, for a result that is neither true
        nor false, and for more cost than allowed.
        """
        evaluation = self.evaluated(device)
        truth = evaluation.truth()
        if truth is None:
            raise self._failed(f"its result {str(evaluation.value)[:64]!r} is neither true nor false")
        return truth

    def evaluated(self, device: SelectorDevice) -> Evaluation:
        """The value and its cost. Raises SelectorFailed if the evaluation fails."""
        try:
            return self._run(device.values())
        except self._no_value as error:
            raise self._failed(str(error), _kept_elsewhere(str(error), device)) from error

    def false_parts(self, device: SelectorDevice) -> tuple[str, ...]:
        """The texts of those terms joined by ``&&`` that are not true of the device, or fail on it."""
        values = device.values()
        return tuple(text for text, part in self._program.parts if not self._is_true(part, values))

    def _is_true(self, part: Any, values: dict[str, Any]) -> bool:
        try:
            return self._run(values, part).truth() is True
        except self._no_value:
            return False

    def _run(self, values: dict[str, Any], part: Any = None) -> Evaluation:
        budget = _budget.get()
        if budget is None:
            return self._program.run(values, part)
        budget.check(self.expression)
        started = time.thread_time()
        try:
            return self._program.run(values, part)
        finally:
            took = time.thread_time() - started
            budget.left_seconds -= took
            budget.spent_seconds[self.expression] = budget.spent_seconds.get(self.expression, 0.0) + took

    def _failed(self, reason: str, way_out: str | None = None) -> SelectorFailed:
        return SelectorFailed(
            f"the selector {self.expression[:200]!r} has no answer: {reason}",
            way_out or "let it test first for what a device may lack, such as device.driver",
        )


def _kept_elsewhere(reason: str, device: SelectorDevice) -> str | None:
    """What to write instead if a missing attribute is a capacity, or a missing capacity an attribute."""
    missing = reason.removeprefix("no such key: ")
    attribute, capacity = (_domain_of(missing, keys) for keys in (device.attributes, device.capacity))
    if capacity is not None and attribute is None:
        amount = f"device.capacity['{capacity or device.driver}'].{missing}"
        return f"{missing} is a capacity: {amount}.compareTo(quantity('10Gi')) >= 0 compares it with 10Gi"
    if attribute is not None and capacity is None:
        return f"{missing} is an attribute: device.attributes['{attribute or device.driver}'].{missing}"
    return None


def _domain_of(name: str, keys: Iterable[str]) -> str | None:
    """The domain of the first key with this name, "" for the driver's own; None if no key has it."""
    split = (key.rpartition("/") for key in keys)
    return next((domain for domain, _, last in split if last == name), None)


@lru_cache(maxsize=1000)
def compile_selector(expression: str) -> Selector:
    """The selector of an expression; raises SelectorInvalid with what is wrong in it.

    The length is not checked: the API server limits it when the selector is written.
    """
    # These import all of CEL and RE2: a process that compiles no selector must not pay for that.
    from kubernetes_rules.cel.checker import DEVICE
    from kubernetes_rules.cel.program import NoValue, compile_program

    try:
        return Selector(expression, compile_program(expression, "device", DEVICE), NoValue)
    except ValueError as error:
        raise SelectorInvalid(
            f"the selector {expression[:200]!r} is invalid: {error}", "correct the expression"
        ) from error
