"""Checks a value by a schema, as kube-openapi's validator does.

Sources: k8s.io/kube-openapi/pkg/validation/validate, and apiextensions' pkg/apiserver/validation, which turns
its errors into field errors and ratchets: what an update leaves alone is not an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kubernetes_rules.cel.library_regex import compiled
from kubernetes_rules.cel.types import CelError
from kubernetes_rules.custom_resources import formats
from kubernetes_rules.custom_resources.correlation import Correlated, same
from kubernetes_rules.custom_resources.schema import Schema
from kubernetes_rules.printed import json_text, number, quoted, with_sorted_keys
from kubernetes_rules.validation import field as fields
from kubernetes_rules.validation.field import FieldError

_TYPE_NAMES: tuple[tuple[type, str, str], ...] = (
    (bool, "boolean", ""),
    (int, "integer", "int64"),
    (float, "number", "float64"),
    (str, "string", ""),
    (list, "array", ""),
    (dict, "object", ""),
)
_LARGEST_SAFE = float(2**53 - 1)
_EPSILON = 1e-9
_LARGEST_FLOAT32 = 3.4028235677973366e38
_INT64_BOUND = 2.0**63
_TYPE_META = frozenset({"kind", "apiVersion"})


@dataclass(frozen=True, slots=True)
class _Problem:
    """One error of kube-openapi: its text, by which equal ones are found, and the error of a field below it.

    ``name`` is the path that the validator knows; None for errors that concern a whole schema, which
    apiextensions reports at the path where the check began.
    """

    text: str
    name: str | None
    error: Callable[[str], FieldError]


@dataclass(slots=True)
class _Result:
    """The problems of a value, and how many checks it passed: anyOf and oneOf show the closest schema."""

    problems: dict[str, _Problem] = field(default_factory=dict)
    matches: int = 0

    def add(self, problem: _Problem) -> None:
        self.problems.setdefault(problem.text, problem)

    def merge(self, other: _Result) -> None:
        for problem in other.problems.values():
            self.add(problem)
        self.matches += other.matches


_ABSENT = object()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value lies: the path, and the old value that it replaces where that is known."""

    path: str
    correlated: Correlated | None
    for_default: bool

    def below(self, path: str, correlated: Correlated | None) -> _Place:
        return replace(self, path=path, correlated=correlated)


def value_errors(schema: Schema, value: Any, path: str = "", old: Any = _ABSENT) -> list[FieldError]:
    """The errors of a value by its schema; ``path`` is that of the value, empty for a whole object.

    With ``old``, errors of values that are as they were in ``old`` are left out.
    """
    correlated = None if old is _ABSENT else Correlated(schema, value, old)
    return _errors(_checked(schema, value, _Place("", correlated, for_default=False)), path)


def default_errors(schema: Schema, path: str) -> list[FieldError]:
    """The errors of a schema's default by that schema; the schema is taken as it is written.

    Unlike for values of objects, ``x-kubernetes-int-or-string`` and unknown formats keep their type.
    """
    return _errors(_checked(schema, schema.default, _Place("", None, for_default=True)), path)


def _errors(result: _Result, path: str) -> list[FieldError]:
    errors = []
    for problem in result.problems.values():
        # apiextensions trims the dot of a name at the root, and knows no name for the root itself.
        name = (problem.name or "").removeprefix(".")
        errors.append(problem.error((f"{path}.{name}" if path else name) if name else path or "<nil>"))
    return errors


def _checked(schema: Schema, value: Any, place: _Place) -> _Result:
    """Check a value, and ignore all errors if it was the same before."""
    result = _Result()
    types = _types(schema, place)
    format_name = schema.format if place.for_default or formats.is_supported(schema.format, types) else ""
    if value is None:
        result.merge(_null_result(schema, types, place))
    else:
        for check in _checks(schema, value, types, format_name, place):
            result.merge(check())
            result.matches += 1
        result.matches += 1
    if result.problems and place.correlated is not None and place.correlated.is_unchanged():
        result.problems.clear()
    return result


def _types(schema: Schema, place: _Place) -> tuple[str, ...]:
    if schema.x_int_or_string and not place.for_default:
        return ("integer", "string")
    return (schema.type,) if schema.type else ()


def _null_result(schema: Schema, types: tuple[str, ...], place: _Place) -> _Result:
    result = _Result(matches=1)
    if types and not schema.nullable:
        result = _Result()
        result.add(_wrong_type(place.path, ",".join(types), "null"))
    if schema.enum:
        result.add(_not_in_enum(schema, None, place.path))
    return result


def _checks(
    schema: Schema, value: Any, types: tuple[str, ...], format_name: str, place: _Place
) -> Iterable[Callable[[], _Result]]:
    """The checks that apply to a value, in kube-openapi's order."""
    if types or format_name:
        yield partial(_type_result, value, types, format_name, place.path)
    yield partial(_logic_result, schema, value, place.below(place.path, None))
    if isinstance(value, str):
        yield partial(_text_result, schema, value, place.path)
        if formats.is_known(format_name):
            yield partial(_format_result, value, format_name, place.path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield partial(_number_result, schema, value, types, format_name, place.path)
    if isinstance(value, list):
        yield partial(_list_result, schema, value, place)
    yield partial(_enum_result, schema, value, place.path)
    if isinstance(value, dict):
        yield partial(_map_result, schema, value, place)


def _validation(
    path: str, value: Any, text: str, kind: Callable[..., FieldError] = fields.invalid
) -> _Problem:
    """A problem of a value; an error shows null as an empty text."""
    shown = "" if value is None else with_sorted_keys(value)
    return _Problem(text, path, lambda where: kind(where, shown, text))


def _composite(text: str) -> _Problem:
    return _Problem(text, None, lambda where: fields.invalid(where, "", text))


def _wrong_type(path: str, wanted: str, value: str) -> _Problem:
    text = f"{path} in body must be of type {wanted}: {quoted(value)}"
    return _validation(path, value, text, fields.type_invalid)


def _type_result(value: Any, types: tuple[str, ...], format_name: str, path: str) -> _Result:
    name, own_format = next((name, of) for kind, name, of in _TYPE_NAMES if isinstance(value, kind))
    fits = (
        name in types
        or (isinstance(value, float) and "integer" in types and _is_whole(value))
        or (name == "integer" and "number" in types)
    )
    result = _Result()
    if not isinstance(value, str | list) and format_name and not fits and own_format != format_name:
        result.add(_wrong_type(path, format_name, own_format))
        return result
    has_text_format = format_name and not {"number", "integer"} & set(types)
    if not fits and not (has_text_format and isinstance(value, str | list)):
        result.add(_wrong_type(path, ",".join(types), name))
        return result
    result.matches = 1
    return result


def _logic_result(schema: Schema, value: Any, place: _Place) -> _Result:
    """anyOf, oneOf, allOf and not; inside them nothing is compared with an old value."""
    result = _Result()
    name = quoted(place.path)
    if schema.any_of:
        result.merge(_any_of_result(schema, value, place, name))
    if schema.one_of:
        result.merge(_one_of_result(schema, value, place, name))
    if schema.all_of:
        found_all = [_checked(entry, value, place) for entry in schema.all_of]
        for found in found_all:
            result.merge(found)
        wrong = sum(1 for found in found_all if found.problems)
        if wrong:
            none = ". None validated" if wrong == len(found_all) else ""
            result.add(_composite(f"{name} must validate all the schemas (allOf){none}"))
    if schema.not_ is not None and not _checked(schema.not_, value, place).problems:
        result.add(_composite(f"{name} must not validate the schema (not)"))
    result.matches += 1
    return result


def _any_of_result(schema: Schema, value: Any, place: _Place, name: str) -> _Result:
    found_all = []
    for entry in schema.any_of:
        found = _checked(entry, value, place)
        if not found.problems:
            return found
        found_all.append(found)
    result = _Result()
    result.add(_composite(f"{name} must validate at least one schema (anyOf)"))
    result.merge(max(found_all, key=lambda found: found.matches))
    return result


def _one_of_result(schema: Schema, value: Any, place: _Place, name: str) -> _Result:
    result = _Result()
    found_all = [_checked(entry, value, place) for entry in schema.one_of]
    right = [found for found in found_all if not found.problems]
    if len(right) == 1:
        result.merge(right[0])
        return result
    count = f"{len(right)} valid alternatives" if right else "none valid"
    result.add(_composite(f"{name} must validate one and only one schema (oneOf). Found {count}"))
    if not right:
        result.merge(max(found_all, key=lambda found: found.matches))
    return result


def _text_result(schema: Schema, value: str, path: str) -> _Result:
    result = _Result()
    most, least = schema.max_length, schema.min_length
    if most is not None and len(value) > most:
        text = f"{path} in body should be at most {most} chars long"
        result.add(_Problem(text, path, lambda where: fields.too_long(where, most)))
    elif least is not None and len(value) < least:
        result.add(_validation(path, value, f"{path} in body should be at least {least} chars long"))
    elif schema.pattern and not _matches(schema.pattern, value):
        result.add(_validation(path, value, f"{path} in body should match '{schema.pattern}'"))
    return result


def _matches(pattern: str, text: str) -> bool:
    try:
        return compiled(pattern).search(text) is not None
    except CelError:
        return False


def _format_result(value: str, format_name: str, path: str) -> _Result:
    result = _Result()
    if not formats.has_format(value, format_name):
        result.add(_wrong_type(path, format_name, value))
    return result


def _number_result(
    schema: Schema, value: float, types: tuple[str, ...], format_name: str, path: str
) -> _Result:
    result = _Result(matches=1)
    kind = types[0] if len(types) == 1 and types[0] in ("integer", "number") else ""
    of_format = format_name if kind and formats.is_supported(format_name, types) else ""

    def out_of_range(checked: float, what: str) -> bool:
        if _is_in_range(checked, kind, of_format):
            return False
        wanted = f"{kind} with format {of_format}" if of_format else f"{kind} (default format)"
        result.add(_composite(f"{what} value must be of type {wanted} in {path}"))
        return True

    out_of_range(value, "Checked")
    is_whole = type(value) is int
    if schema.multiple_of is not None:
        as_float = out_of_range(schema.multiple_of, "MultipleOf") or not is_whole
        result.merge(_multiple_result(value, schema.multiple_of, as_float, path))
    for limit, exclusive, what, word, sign in (
        (schema.minimum, schema.exclusive_minimum, "Minimum", "greater", -1),
        (schema.maximum, schema.exclusive_maximum, "Maximum", "less", 1),
    ):
        if limit is None:
            continue
        as_float = out_of_range(limit, f"{what} boundary") or not is_whole
        bound = limit if as_float else _truncated(limit)
        compared = float(value) if as_float else value
        beyond = (compared - bound) * sign
        if beyond > 0 or (exclusive and beyond == 0):
            than = f"{word} than" if exclusive else f"{word} than or equal to"
            # Kubernetes' fallback shows the value converted to a number with a fraction.
            result.add(_validation(path, compared, f"{path} in body should be {than} {number(bound)}"))
    return result


def _truncated(value: float) -> int:
    """The int64 of a number as amd64 converts it."""
    return int(value) if -_INT64_BOUND <= value < _INT64_BOUND else -(2**63)


def _is_in_range(value: float, kind: str, format_name: str) -> bool:
    """Whether a number fits the type (IsValueValidAgainstRange)."""
    if kind == "integer":
        if value != math.floor(value):
            return False
        bound = 2**31 if format_name == "int32" else 2**63
        return -bound <= value < bound
    return format_name != "float" or abs(value) < _LARGEST_FLOAT32


def _multiple_result(value: float, factor: float, as_float: bool, path: str) -> _Result:
    result = _Result()
    shown = factor if as_float else _truncated(factor)
    if shown <= 0:
        text = f"factor MultipleOf declared for {path} must be positive: {number(shown)}"
        result.add(_validation(path, shown, text))
        return result
    if as_float:
        ratio = 1 / factor * value if factor < 1 else value / factor
        right = _is_whole(ratio)
    else:
        right = value % shown == 0
    if not right:
        compared = float(value) if as_float else value
        result.add(_validation(path, compared, f"{path} in body should be a multiple of {number(shown)}"))
    return result


def _is_whole(value: float) -> bool:
    """Whether JSON takes a number for an integer (swag.IsFloat64AJSONInteger)."""
    if not math.isfinite(value) or abs(value) > _LARGEST_SAFE:
        return False
    # Go rounds half away from zero.
    rounded = math.copysign(math.floor(abs(value) + 0.5), value)
    if value == rounded:
        return True
    return rounded != 0 and abs(value - rounded) < _EPSILON * abs(rounded)


def _list_result(schema: Schema, value: list[Any], place: _Place) -> _Result:
    result = _Result(matches=1)
    path = place.path
    if schema.items is not None:
        for index, entry in enumerate(value):
            old = place.correlated and place.correlated.entry(index)
            result.merge(_checked(schema.items, entry, place.below(f"{path}[{index}]", old)))
    count = len(value)
    if schema.min_items is not None and count < schema.min_items:
        result.add(_validation(path, count, f"{path} in body should have at least {schema.min_items} items"))
    most = schema.max_items
    if most is not None and count > most:
        text = f"{path} in body should have at most {most} items"
        result.add(_Problem(text, path, lambda where: fields.too_many(where, count, most)))
    return result


def _enum_result(schema: Schema, value: Any, path: str) -> _Result:
    result = _Result()
    if schema.enum and not any(_converts_to(value, entry) for entry in schema.enum):
        result.add(_not_in_enum(schema, value, path))
    return result


def _converts_to(value: Any, entry: Any) -> bool:
    """Whether Go finds a value equal to an entry of an enum after converting it to the entry's type."""
    if isinstance(entry, bool) or isinstance(value, bool):
        return isinstance(entry, bool) and isinstance(value, bool) and entry == value
    if isinstance(value, int) and isinstance(entry, str):
        return len(entry) == 1 and ord(entry) == value
    if isinstance(value, float) and isinstance(entry, int):
        return _truncated(value) == entry
    if isinstance(value, int) and isinstance(entry, float):
        return float(value) == entry
    return same(value, entry)


def _not_in_enum(schema: Schema, value: Any, path: str) -> _Problem:
    supported = [
        entry if isinstance(entry, str) else json_text(with_sorted_keys(entry)) for entry in schema.enum
    ]
    text = f"{path} in body should be one of {supported}"
    shown = with_sorted_keys(value)
    return _Problem(text, path, lambda where: fields.not_supported(where, shown, supported))


def _map_result(schema: Schema, value: dict[str, Any], place: _Place) -> _Result:
    result = _Result()
    path, count = place.path, len(value)
    least, most = schema.min_properties, schema.max_properties
    if least is not None and count < least:
        result.add(_validation(path, count, f"{path} in body should have at least {least} properties"))
    if most is not None and count > most:
        text = f"{path} in body should have at most {most} properties"
        result.add(_Problem(text, path, lambda where: fields.too_many(where, count, most)))
    for key, entry in value.items():
        known = schema.properties.get(key)
        if known is None and schema.additional_properties is False:
            result.add(_validation(path, key, f"{path}.{key} in body is a forbidden property"))
        child = known or schema.values
        if child is None:
            continue
        here = f"{path}.{key}" if path or known is None else key
        old = place.correlated and place.correlated.value_of(key)
        if not path and key in _TYPE_META:
            old = None
        result.merge(_checked(child, entry, place.below(here, old)))
    for key in schema.required:
        if key not in value:
            text = f"{path}.{key} in body is required"
            result.add(_Problem(text, f"{path}.{key}", fields.required))
    return result
