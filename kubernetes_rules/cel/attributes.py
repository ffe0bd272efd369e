"""Paths into values: variables, fields, keys and indexes (cel-go, interpreter/attributes.go).

A path costs one unit, and each of its steps one more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.cel.operators import COST, DEVICE, MISSING, DeviceMap, Evaluate, Frame, find
from kubernetes_rules.cel.optionals import NONE, some
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.cel.values import Optional


class DomainMap(DeviceMap):
    """A map of domains. An unknown domain is an empty map, an unknown name within a domain is an error."""

    __slots__ = ()

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return DeviceMap()


@dataclass(frozen=True, slots=True)
class Step:
    """One field, key or index: ``key`` if it is a constant, else ``compute``.

    ``optional`` steps (``a.?b``) return an optional without a value instead of an error. ``test`` steps
    (``has(a.b)``) return whether there is one.
    """

    key: Any = None
    compute: Evaluate | None = None
    optional: bool = False
    test: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from a value. ``device``: the value is the device."""

    root: Evaluate
    steps: tuple[Step, ...] = ()
    device: bool = False

    def followed_by(self, step: Step) -> Path:
        """The path with one more step."""
        return Path(self.root, (*self.steps, step), self.device)


@dataclass(frozen=True, slots=True)
class Choice:
    """``condition ? truthy : falsy``; steps that follow apply to both."""

    condition: Evaluate
    truthy: Attribute
    falsy: Attribute

    def followed_by(self, step: Step) -> Choice:
        """The choice with one more step on both sides."""
        return Choice(self.condition, self.truthy.followed_by(step), self.falsy.followed_by(step))


Attribute = Path | Choice


def get(value: Any, key: Any, *, lenient: bool) -> Any:
    """The value at a key or index, MISSING if there is none.

    Raises CelError for an invalid index and, unless ``lenient``, for a value that has no keys.
    """
    if isinstance(value, Mapping):
        found = find(value, key)
        return value[key] if found is MISSING and isinstance(value, DomainMap) else found
    if isinstance(value, tuple):
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    if lenient:
        return MISSING
    raise CelError(f"no such key: {key}")


def _index(key: Any) -> int:
    if (
        isinstance(key, bool)
        or not isinstance(key, int | float)
        or key != key
        or key != (whole := int_of(key))
    ):
        raise CelError(f"unsupported index value {key!r}")
    return whole


def int_of(number: float) -> int:
    """The integer part. Raises CelError for an infinite number."""
    try:
        return int(number)
    except (OverflowError, ValueError) as error:
        raise CelError("invalid index") from error


def _is_key(key: Any) -> bool:
    return isinstance(key, str | int | float)


def resolver(attribute: Attribute) -> Evaluate:
    """Evaluates a path without the unit for the path itself."""
    if isinstance(attribute, Choice):
        return _choice(attribute)
    if not attribute.steps:
        return attribute.root
    if all(step.compute is None and not step.optional and not step.test for step in attribute.steps):
        keys = tuple(step.key for step in attribute.steps)
        # A choice between a bool and what has no type leads into a field that is no map.
        known = len(keys) == 1 or keys[0] in ("attributes", "capacity")
        if known and attribute.device and len(keys) <= 3 and all(type(key) is str for key in keys):
            return _device_path(keys)
        return _plain_path(attribute.root, keys)
    return _general_path(attribute.root, attribute.steps)


def evaluator(attribute: Attribute, units: int = 1) -> Evaluate:
    """Evaluates a path with the units for the path itself."""
    resolve = resolver(attribute)
    if isinstance(attribute, Choice) or units == 0:
        return resolve

    def run(frame: Frame) -> Any:
        frame[COST] += 1
        return resolve(frame)

    return run


def tested(attribute: Attribute) -> Evaluate:
    """Evaluates a path that ends in ``has()``, without the unit for the path itself.

    After a choice the last step is free too.
    """
    resolve = evaluator(attribute, units=0)
    if not isinstance(attribute, Choice):
        return resolve

    def run(frame: Frame) -> Any:
        frame[COST] -= 1
        return resolve(frame)

    return run


def _choice(choice: Choice) -> Evaluate:
    condition, truthy, falsy = choice.condition, resolver(choice.truthy), resolver(choice.falsy)

    def run(frame: Frame) -> Any:
        decided = condition(frame)
        if decided is True:
            return truthy(frame)
        if decided is False:
            return falsy(frame)
        raise CelError("no such overload")

    return run


def _device_path(keys: tuple[str, ...]) -> Evaluate:
    """A path from the device: its first values are known to be maps, so that nothing has to be checked."""
    first, count = keys[0], len(keys)
    if count == 1:

        def field(frame: Frame) -> Any:
            frame[COST] += 1
            return frame[DEVICE][first]

        return field
    if count == 2:

        def domain(frame: Frame) -> Any:
            frame[COST] += 2
            return frame[DEVICE][first][keys[1]]

        return domain
    second, third = keys[1], keys[2]

    def identifier(frame: Frame) -> Any:
        frame[COST] += 3
        try:
            return frame[DEVICE][first][second][third]
        except KeyError:
            raise CelError(f"no such key: {third}") from None

    return identifier


def _plain_path(root: Evaluate, keys: tuple[Any, ...]) -> Evaluate:
    def run(frame: Frame) -> Any:
        value = root(frame)
        if isinstance(value, Optional):
            return _optional_steps(frame, value, keys)
        for key in keys:
            frame[COST] += 1
            value = get(value, key, lenient=False)
            if value is MISSING:
                raise CelError(f"no such key: {key}")
        return value

    return run


def _optional_steps(frame: Frame, start: Optional, keys: tuple[Any, ...]) -> Optional:
    if not start.present:
        return start
    value = start.value
    for key in keys:
        value = get(value, key, lenient=True)
        if value is MISSING:
            return NONE
        frame[COST] += 1
    return some(value)


def _key_of(step: Step, frame: Frame) -> Any:
    if step.compute is None:
        return step.key
    key = step.compute(frame)
    if not _is_key(key):
        raise CelError("invalid qualifier type")
    return key


def _general_path(root: Evaluate, steps: tuple[Step, ...]) -> Evaluate:
    def run(frame: Frame) -> Any:
        value = root(frame)
        optional = isinstance(value, Optional)
        if optional:
            if not value.present:
                return False if steps[-1].test else value
            value = value.value
        for step in steps:
            optional = optional or step.optional
            try:
                key = _key_of(step, frame)
                found = get(value, key, lenient=optional or step.test)
            # A step costs a unit also if it fails, but not after an optional one.
            except CelError:
                frame[COST] += 0 if optional else 1
                raise
            if found is MISSING and optional:
                return False if steps[-1].test else NONE
            frame[COST] += 1
            if step.test and not optional:
                return found is not MISSING
            if found is MISSING:
                raise CelError(f"no such key: {key}")
            value = found
        if not optional:
            return value
        return True if steps[-1].test else some(value)

    return run
