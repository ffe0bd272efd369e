"""Evaluates what macros have become (cel-go, interpreter/interpretable.go: evalFold)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.cel.frame import Evaluate, Frame, check_cost
from kubernetes_rules.cel.operators import Gathered
from kubernetes_rules.cel.optionals import GatheredMap, finished
from kubernetes_rules.cel.types import CelError


class Unset:
    """Says that the accumulator has not been looked at yet: its first value is computed only then."""


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class PlannedFold:
    """The parts of a fold, and where its variables lie. ``second`` is -1 where there is one variable."""

    items: Evaluate
    condition: Evaluate
    step: Evaluate
    result: Evaluate
    accumulator: int
    first: int
    second: int


def accumulator_reader(slot: int, initial: Evaluate) -> Evaluate:
    """Reads an accumulator; it raises the error that the accumulator holds, if it holds one.

    The slot behind it tells whether it began as an empty list.
    """

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is UNSET:
            value = frame[slot] = _first_value(initial, frame)
            frame[slot + 1] = value == ()
        if isinstance(value, CelError):
            raise value
        return value

    return read


def _first_value(initial: Evaluate, frame: Frame) -> Any:
    try:
        return initial(frame)
    except CelError as error:
        return error


def gathering(initial: Any) -> Evaluate:
    """Gives a list or a map that the macro fills in place."""
    kind = Gathered if isinstance(initial, tuple) else GatheredMap
    return lambda _: kind()


def bind(fold: PlannedFold) -> Evaluate:
    """A fold over nothing: its result, with a variable."""
    slot, result = fold.accumulator, fold.result

    def run(frame: Frame) -> Any:
        frame[slot] = UNSET
        return result(frame)

    return run


def appending(call: Evaluate, slot: int) -> Evaluate:
    """``x + list`` of a bound variable: cel-go changes the variable too, if it began as an empty list."""

    def run(frame: Frame) -> Any:
        value = call(frame)
        if frame[slot + 1] is True and isinstance(value, tuple):
            frame[slot] = value
        return value

    return run


def over_items(fold: PlannedFold) -> Evaluate:
    """A fold over a list, or a map's keys; with two variables over indices or keys, and values."""
    condition, step, slot, first, second = (
        fold.condition,
        fold.step,
        fold.accumulator,
        fold.first,
        fold.second,
    )

    def run(frame: Frame) -> Any:
        pairs = _pairs(fold.items(frame), second >= 0)
        frame[slot] = UNSET
        for one, other in pairs:
            frame[first] = one
            if second >= 0:
                frame[second] = other
            if not _goes_on(condition, frame):
                break
            try:
                frame[slot] = step(frame)
            except CelError as error:
                frame[slot] = error
            check_cost(frame)
        return finished(fold.result(frame))

    return run


def _goes_on(condition: Evaluate, frame: Frame) -> bool:
    try:
        return condition(frame) is not False
    except CelError:
        return True


def _pairs(items: Any, two: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(items, Mapping):
        return tuple(items.items())
    if isinstance(items, tuple):
        return enumerate(items) if two else ((item, None) for item in items)
    raise CelError("the range of a macro must be a list or a map")
