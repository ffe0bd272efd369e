"""Device selectors: CEL expressions over one device, as the Kubernetes scheduler evaluates them.

The environment is that of k8s.io/dynamic-resource-allocation/cel for stored expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from driver.cel.frame import Aborted, check_cost
from driver.cel.types import CelError
from driver.errors import DriverError

if TYPE_CHECKING:
    from driver.cel.frame import Evaluate, Frame

MAX_EXPRESSION_BYTES = 10 * 1024
"""The limit that resource.k8s.io/v1 sets for a selector (CELSelectorExpressionMaxLength)."""


class SelectorInvalid(DriverError):
    """An expression is no selector: Kubernetes refuses it when it is written."""

    retryable = False


class SelectorFailed(DriverError):
    """A selector has no answer for a device, and so the scheduler gives up on the pod."""

    retryable = False


@dataclass(frozen=True, slots=True)
class SelectorDevice:
    """What a selector can see of a device.

    ``attributes`` and ``capacity`` are those of a device of a ResourceSlice, as its JSON has them:
    ``{"model": {"string": "H100"}}``, ``{"memory": {"value": "80Gi"}}``.
    """

    driver: str
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Any]]
    allow_multiple_allocations: bool = False
    _values: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def values(self) -> dict[str, Any]:
        """The value of ``device``. Raises SelectorFailed when an attribute is none that Kubernetes knows."""
        if not self._values:
            from driver.cel.device import device_value

            self._values.append(device_value(self))
        return self._values[0]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation gave: a value, usually a bool, and the units it cost."""

    value: Any
    cost: int


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector. Thread-safe: each evaluation has a frame of its own."""

    expression: str
    _evaluate: Evaluate = field(repr=False)
    _slots: int = field(repr=False)
    _parts: tuple[tuple[str, Evaluate], ...] = field(repr=False)

    def matches(self, device: SelectorDevice) -> bool:
        """Whether the selector selects the device.

        Raises SelectorFailed when it has no answer: a key that is not there and was not tested for, a
        result that is neither true nor false, more cost than allowed.
        """
        result = self.evaluated(device).value
        if result is True or result is False:
            return bool(result)
        raise self._failed(f"its result {str(result)[:64]!r} is neither true nor false")

    def evaluated(self, device: SelectorDevice) -> Evaluation:
        """The value and its cost. Raises SelectorFailed when there is none."""
        return self._run(self._evaluate, device.values())

    def false_parts(self, device: SelectorDevice) -> tuple[str, ...]:
        """The text of those parts joined by ``&&`` that are not true of the device, or that fail for it."""
        found: list[str] = []
        for text, evaluate in self._parts:
            try:
                holds = self._run(evaluate, device.values()).value is True
            except SelectorFailed:
                holds = False
            if not holds:
                found.append(text)
        return tuple(found)

    def _run(self, evaluate: Evaluate, values: dict[str, Any]) -> Evaluation:
        frame: Frame = [0, 0, values] + [None] * self._slots
        try:
            value = evaluate(frame)
            check_cost(frame)
        except (CelError, Aborted) as error:
            raise self._failed(str(error)) from error
        except RecursionError as error:
            raise self._failed("it is nested too deeply") from error
        return Evaluation(value, frame[0])

    def _failed(self, reason: str) -> SelectorFailed:
        return SelectorFailed(
            f"the selector {self.expression[:200]!r} has no answer: {reason}",
            "let it test first for what a device may lack, such as device.driver",
        )


@lru_cache(maxsize=1000)
def compile_selector(expression: str) -> Selector:
    """The selector that a text is; raises SelectorInvalid with what is wrong in it."""
    from driver.cel.checker import DEVICE, Checker, TypeInvalid, Variable
    from driver.cel.lexer import SyntaxInvalid
    from driver.cel.literals import check_literals
    from driver.cel.parser import parse
    from driver.cel.plan import Planner
    from driver.cel.syntax import Call
    from driver.cel.types import BOOL, DYN

    try:
        tree = parse(expression)
        checker = Checker({"device": Variable("device", DEVICE)})
        result = checker.final(checker.check(tree))
        check_literals(checker, tree)
        if result not in (BOOL, DYN):
            raise TypeInvalid(f"it must evaluate to bool or the unknown type, not {result}")
        planner = Planner()
        evaluate = planner.planned(tree)
        terms = tree.arguments if isinstance(tree, Call) and tree.function == "_&&_" else [tree]
        parts = tuple((expression[term.start : term.end], planner.planned(term)) for term in terms)
    except (SyntaxInvalid, TypeInvalid) as error:
        raise _invalid(expression, str(error)) from error
    except RecursionError as error:
        raise _invalid(expression, "it is nested too deeply") from error
    return Selector(expression, evaluate, planner.slots, parts)


def _invalid(expression: str, reason: str) -> SelectorInvalid:
    return SelectorInvalid(
        f"the selector {expression[:200]!r} is invalid: {reason}", "correct the expression"
    )
