"""Turns a checked tree into closures that evaluate it (cel-go, interpreter/planner.go).

The parser turns macros into folds (cel-go, interpreter/interpretable.go: evalFold).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.cel import syntax
from kubernetes_rules.cel.attributes import Attribute, Choice, Path, Step, evaluator, resolver, tested
from kubernetes_rules.cel.calls import callee, planned_call, text_equality
from kubernetes_rules.cel.checker import DEVICE as DEVICE_TYPE
from kubernetes_rules.cel.checker import TypeInvalid
from kubernetes_rules.cel.conversions import NAMES
from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.operators import (
    COST,
    DEVICE,
    FIRST_SLOT,
    Aborted,
    Evaluate,
    Frame,
    Gathered,
    check_cost,
    check_hashable,
)
from kubernetes_rules.cel.optionals import GatheredMap, finished
from kubernetes_rules.cel.types import CelError, Type
from kubernetes_rules.cel.values import Optional, surely_equal

# ListCreateBaseCost and MapCreateBaseCost of cel-go, common/cost.go.
_LIST_UNITS = 10
_MAP_UNITS = 30
_PARSERS = frozenset(("quantity", "semver", "ip", "cidr", "url"))
_PATTERN_FUNCTIONS = frozenset(("matches", "find", "findAll"))


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is known before the expression runs; it costs nothing."""

    value: Any


Plan = Constant | Path | Choice | Evaluate


class Planner:
    """Plans one tree. ``slots`` is the length that a frame needs; ``final`` is ``Checker.final``."""

    def __init__(self, final: Callable[[Type], Type]) -> None:
        self._final = final
        self.slots = FIRST_SLOT
        self._readers: dict[syntax.Variable, Evaluate] = {}
        self._bound: set[syntax.Variable] = set()

    def planned(self, node: syntax.Node) -> Evaluate:
        """The evaluation of a part. Raises TypeInvalid if a constant in it is wrong."""
        return _evaluate(self._plan(node))

    def _plan(self, node: syntax.Node) -> Plan:
        match node:
            case syntax.Literal():
                return Constant(node.value)
            case syntax.Ident():
                return self._ident(node)
            case syntax.Select():
                return self._select(node)
            case syntax.Call():
                return self._call(node)
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.Fold():
                return self._fold(node)
        raise TypeInvalid("an unknown kind of expression")

    def _ident(self, node: syntax.Ident) -> Plan:
        variable = node.meaning
        if isinstance(variable, Type):
            return Constant(variable)
        if self._final(variable.type).name == "type":
            raise TypeInvalid(f"the variable {node.name!r} stands for a type", node.at)
        if variable.slot < 0:
            return Path(_read_slot(DEVICE), device=variable.type == DEVICE_TYPE)
        return Path(self._readers.get(variable) or _read_slot(variable.slot))

    def _select(self, node: syntax.Select) -> Plan:
        if node.constant is not None:
            return Constant(node.constant)
        attribute = _attribute(self._plan(node.operand))
        attribute = attribute.followed_by(Step(node.field, test=node.test_only))
        return tested(attribute) if node.test_only else attribute

    def _call(self, node: syntax.Call) -> Plan:
        plans = [self._plan(argument) for argument in node.all_arguments()]
        special = _special(node, plans)
        if special is not None:
            return special
        name = node.function
        constant = plans[0].value if plans and isinstance(plans[0], Constant) else None
        if name in NAMES and plans and isinstance(plans[0], Constant):
            return _constant_call(node, constant)
        call = planned_call(node, [_evaluate(plan) for plan in plans])
        if name == "_+_" and (slot := self._bound_slot(node)) >= 0:
            return _appending(call, slot)
        return _parsed_once(call) if name in _PARSERS and constant is not None else call

    def _bound_slot(self, node: syntax.Call) -> int:
        """The slot of the bound variable at the begin of a chain of ``+``, -1 for other calls."""
        first = node.arguments[0]
        while isinstance(first, syntax.Call) and first.function == "_+_":
            first = first.arguments[0]
        variable = first.meaning if isinstance(first, syntax.Ident) else None
        return variable.slot if isinstance(variable, syntax.Variable) and variable in self._bound else -1

    def _list(self, node: syntax.ListLiteral) -> Plan:
        plans = [self._plan(element) for element in node.elements]
        if not node.optional and all(isinstance(plan, Constant) for plan in plans):
            return Constant(tuple(plan.value for plan in plans if isinstance(plan, Constant)))
        evaluates = [_evaluate(plan) for plan in plans]
        optional = node.optional

        def run(frame: Frame) -> Any:
            frame[COST] += _LIST_UNITS
            if not optional:
                return tuple([evaluate(frame) for evaluate in evaluates])
            elements: list[Any] = []
            for index, evaluate in enumerate(evaluates):
                value = evaluate(frame)
                if index in optional:
                    elements.extend(_optional_values(value))
                else:
                    elements.append(value)
            return tuple(elements)

        return run

    def _map(self, node: syntax.MapLiteral) -> Plan:
        plans = [(self._plan(key), self._plan(value), optional) for key, value, optional in node.entries]
        entries = [(_evaluate(key), _evaluate(value), optional) for key, value, optional in plans]

        def run(frame: Frame) -> Any:
            frame[COST] += _MAP_UNITS
            made: dict[Any, Any] = {}
            for key, evaluate, optional in entries:
                place, value = key(frame), evaluate(frame)
                present = _optional_values(value) if optional else (value,)
                check_hashable(place, entries)
                try:
                    # An optional entry without a value removes an earlier entry with its key.
                    if present:
                        made[place] = present[0]
                    else:
                        made.pop(place, None)
                except TypeError as error:
                    raise CelError("unsupported key type") from error
            return made

        constant = all(isinstance(plan, Constant) for key, value, _ in plans for plan in (key, value))
        if constant and not any(optional for _, _, optional in plans):
            try:
                return Constant(run([0]))
            except (Aborted, CelError) as error:
                raise TypeInvalid(str(error), node.at) from error
        return run

    def _slot(self, variable: syntax.Variable) -> int:
        variable.slot = self.slots
        self.slots += 1
        return variable.slot

    def _fold(self, node: syntax.Fold) -> Plan:
        accumulator = node.gathered
        initial = self._plan(node.initial)
        items = self.planned(node.items)
        slot = self._slot(accumulator)
        self.slots += 1
        evaluate_initial = _evaluate(initial)
        if (
            node.accumulator == syntax.ACCUMULATOR
            and isinstance(initial, Constant)
            and initial.value in ((), {})
        ):
            evaluate_initial = _gathering(initial.value)
        self._readers[accumulator] = _accumulator_reader(slot, evaluate_initial)
        if node.variable == syntax.UNUSED:
            self.planned(node.step)
            self._bound.add(accumulator)
            result = self.planned(node.result)
            return _binding(slot, result)
        places = [self._slot(variable) for variable in node.item_variables]
        condition, step = self.planned(node.condition), self.planned(node.step)
        result = self.planned(node.result)
        second = places[1] if node.second else -1
        return _over_items(PlannedFold(items, condition, step, result, slot, places[0], second))


def _special(node: syntax.Call, plans: list[Plan]) -> Plan | None:
    """The plan of an operator that does not just call a function with values; None for other calls."""
    match node.function:
        case "_&&_":
            return _short_circuit([_evaluate(plan) for plan in plans], by=False)
        case "_||_":
            return _short_circuit([_evaluate(plan) for plan in plans], by=True)
        case "_?_:_":
            return Choice(_evaluate(plans[0]), _attribute(plans[1]), _attribute(plans[2]))
        case "_[_]" | "_[?_]" | "_?._":
            return _attribute(plans[0]).followed_by(_step(plans[1], optional="?" in node.function))
        case "@not_strictly_false":
            return _not_strictly_false(_evaluate(plans[0]))
        case "or" | "orValue":
            return _optional_or(_evaluate(plans[0]), _evaluate(plans[1]), node.function == "orValue")
    second = plans[1] if len(plans) == 2 or node.function == "findAll" else None
    return _with_constant(node, plans, second.value) if isinstance(second, Constant) else None


def _with_constant(node: syntax.Call, plans: list[Plan], value: Any) -> Plan | None:
    """The plan of a call whose second argument is a constant, None if that makes no difference."""
    if node.function == "@in" and len(node.overloads) == 1:
        return _membership(plans[0], value)
    if node.function == "_==_" and type(value) is str:
        return text_equality(_evaluate(plans[0]), value, node.overloads)
    # A literal pattern is compiled now: an invalid one makes the whole expression invalid.
    if node.function in _PATTERN_FUNCTIONS:
        _check_pattern(value)
        return planned_call(node, [_evaluate(plan) for plan in plans], reads_text=True)
    return None


def _read_slot(slot: int) -> Evaluate:
    return lambda frame: frame[slot]


def _evaluate(plan: Plan) -> Evaluate:
    if isinstance(plan, Constant):
        value = plan.value
        return lambda _: value
    if isinstance(plan, Path | Choice):
        return evaluator(plan)
    return plan


def _attribute(plan: Plan) -> Attribute:
    return plan if isinstance(plan, Path | Choice) else Path(_evaluate(plan))


def _step(plan: Plan, *, optional: bool) -> Step:
    if isinstance(plan, Constant):
        if not isinstance(plan.value, str | int | float):
            raise TypeInvalid(f"{plan.value!r} can be no key")
        return Step(plan.value, optional=optional)
    compute = resolver(plan) if isinstance(plan, Path | Choice) else plan
    return Step(compute=compute, optional=optional)


def _short_circuit(terms: list[Evaluate], *, by: bool) -> Evaluate:
    """``&&`` is false with the first false term, ``||`` true with the first true one, even after an error."""
    decided, other = by, not by

    def run(frame: Frame) -> bool:
        failed: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failed = failed or error
                continue
            if value is by:
                return decided
            if value is not other:
                failed = failed or CelError("no such overload")
        if failed is not None:
            raise failed
        return other

    return run


def _not_strictly_false(term: Evaluate) -> Evaluate:
    def run(frame: Frame) -> bool:
        frame[COST] += 1
        try:
            return term(frame) is not False
        except CelError:
            return True

    return run


def _optional_or(first: Evaluate, second: Evaluate, unwraps: bool) -> Evaluate:
    def run(frame: Frame) -> Any:
        value = first(frame)
        if not isinstance(value, Optional):
            raise CelError("no such overload")
        if value.present:
            return value.value if unwraps else value
        return second(frame)

    return run


def _membership(plan: Plan, elements: Any) -> Plan | None:
    """``in`` with a literal list of plain values, which costs nothing; None for other lists."""
    if not isinstance(elements, tuple):
        return None
    if not elements:
        return Constant(False)  # noqa: FBT003 - the value of an expression
    if not all(isinstance(element, bool | int | float | str) for element in elements):
        return None
    evaluate = _evaluate(plan)
    if all(type(element) is str for element in elements):
        texts = frozenset(elements)

        def run(frame: Frame) -> bool:
            value = evaluate(frame)
            if type(value) is str:
                return value in texts
            check_hashable(value, texts)
            return False

        return run
    return lambda frame: _is_member(evaluate(frame), elements)


def _is_member(value: Any, elements: tuple[Any, ...]) -> bool:
    check_hashable(value, elements)
    return any(surely_equal(value, element) for element in elements)


def _check_pattern(pattern: Any) -> None:
    if isinstance(pattern, str):
        try:
            compiled(pattern)
        except CelError as error:
            raise TypeInvalid(str(error)) from error


def _constant_call(node: syntax.Call, value: Any) -> Constant:
    try:
        return Constant(callee(node.function, node.overloads)(value))
    except CelError as error:
        raise TypeInvalid(str(error), node.at) from error


def _parsed_once(call: Evaluate) -> Evaluate:
    """A call on a literal text, made now; it still costs the same at each evaluation."""
    frame: Frame = [0, 0]
    try:
        value = call(frame)
    except CelError:
        return call
    units = frame[COST]

    def run(frame: Frame) -> Any:
        frame[COST] += units
        return value

    return run


def _optional_values(value: Any) -> tuple[Any, ...]:
    """The value of an optional element, if it has one."""
    if not isinstance(value, Optional):
        raise CelError("cannot initialize an optional element from a value that is not optional")
    return (value.value,) if value.present else ()


_UNSET = object()
"""The accumulator before it is first read: its first value is computed only then."""


@dataclass(frozen=True, slots=True)
class PlannedFold:
    """The parts of a fold, and the slots of its variables. ``second`` is -1 if there is one variable."""

    items: Evaluate
    condition: Evaluate
    step: Evaluate
    result: Evaluate
    accumulator: int
    first: int
    second: int


def _accumulator_reader(slot: int, initial: Evaluate) -> Evaluate:
    """Reads an accumulator, or raises the error that it holds.

    The slot after it says whether it began as an empty list.
    """

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is _UNSET:
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


def _gathering(initial: Any) -> Evaluate:
    """An empty list or map that the macro fills in place."""
    kind = Gathered if isinstance(initial, tuple) else GatheredMap
    return lambda _: kind()


def _binding(slot: int, result: Evaluate) -> Evaluate:
    """A fold over nothing (cel.bind): its result, with a variable."""

    def run(frame: Frame) -> Any:
        frame[slot] = _UNSET
        return result(frame)

    return run


def _appending(call: Evaluate, slot: int) -> Evaluate:
    """``x + list`` for a bound variable x: if it began as an empty list, cel-go changes the variable too."""

    def run(frame: Frame) -> Any:
        value = call(frame)
        if frame[slot + 1] is True and isinstance(value, tuple):
            frame[slot] = value
        return value

    return run


def _over_items(fold: PlannedFold) -> Evaluate:
    """A fold over a list or a map's keys; with two variables, over indexes or keys and their values."""
    condition, step, slot, first, second = (
        fold.condition,
        fold.step,
        fold.accumulator,
        fold.first,
        fold.second,
    )

    def run(frame: Frame) -> Any:
        pairs = _pairs(fold.items(frame), second >= 0)
        frame[slot] = _UNSET
        for one, other in pairs:
            frame[first] = one
            if second >= 0:
                frame[second] = other
            if not _continues(condition, frame):
                break
            try:
                frame[slot] = step(frame)
            except CelError as error:
                frame[slot] = error
            # Loops are what makes an expression expensive, so the limit is checked in each round.
            check_cost(frame)
        return finished(fold.result(frame))

    return run


def _continues(condition: Evaluate, frame: Frame) -> bool:
    try:
        return condition(frame) is not False
    except CelError:
        return True


def _pairs(items: Any, two: bool) -> Iterable[tuple[Any, Any]]:
    """One or two variables for each round; the second is unused if there is one."""
    if isinstance(items, Mapping):
        return tuple(items.items())
    if isinstance(items, tuple):
        return enumerate(items) if two else ((item, None) for item in items)
    raise CelError("the range of a macro must be a list or a map")
