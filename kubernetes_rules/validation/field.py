"""Errors of fields, as apimachinery's package field makes them, and checks of lists and maps of fields."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.printed import quoted, shown

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
NOT_FOUND = "FieldValueNotFound"
INTERNAL = "InternalError"

TITLES = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    NOT_FOUND: "Not found",
    INTERNAL: "Internal error",
}
OMITTED = "<value omitted>"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: the path of the field, the type (a metav1.CauseType) and the text after the path."""

    field: str
    type: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"

    @property
    def title(self) -> str:
        """The type in words, with which the text begins."""
        return TITLES[self.type]


def required(path: str, detail: str = "") -> FieldError:
    """A value is missing."""
    return _error(path, REQUIRED, None, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """A value must not be set."""
    return _error(path, FORBIDDEN, None, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value breaks a rule; None is printed as JSON's null."""
    return _error(path, INVALID, [value], detail)


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    """A reference names something that does not exist."""
    return _error(path, NOT_FOUND, [value], detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """A value is not one of an enumeration."""
    choices = ", ".join(map(quoted, supported))
    return _error(path, NOT_SUPPORTED, [value], f"supported values: {choices}" if choices else "")


def duplicate(path: str, value: Any, detail: str = "") -> FieldError:
    """An entry equals an earlier one; ``path`` is that of the later one."""
    return _error(path, DUPLICATE, [value], detail)


def too_long(path: str, most_bytes: int) -> FieldError:
    """A text is longer than its limit."""
    unit = "byte" if most_bytes == 1 else "bytes"
    text = "value is too long" if most_bytes < 0 else f"may not be more than {most_bytes} {unit}"
    return _error(path, TOO_LONG, None, text)


def too_many(path: str, count: int, most: int) -> FieldError:
    """A list or map has more entries than its limit."""
    text = f"must have at most {most} item{'' if most == 1 else 's'}"
    return _error(path, TOO_MANY, [count], "has too many items" if most < 0 else text)


def all_invalid(path: str, value: Any, details: Sequence[str]) -> list[FieldError]:
    """One error ``invalid`` for each of ``details``."""
    return [invalid(path, value, detail) for detail in details]


def unique(errors: Iterable[FieldError]) -> list[FieldError]:
    """The errors in order, without duplicates."""
    return list(dict.fromkeys(errors))


def list_errors(
    items: Sequence[Any] | None,
    path: str,
    check: Callable[[Any, str], list[FieldError]],
    most: int | None = None,
    key: Callable[[Any], Hashable] | None = None,
) -> list[FieldError]:
    """The errors of a list; the entries of one with more than ``most`` are not checked.

    With ``key``, no two entries may have the same key.
    """
    items = items or []
    if most is not None and len(items) > most:
        return [too_many(path, len(items), most)]
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        errors += check(item, f"{path}[{index}]")
    return errors if key is None else errors + duplicate_errors(items, path, key)


def duplicate_errors(items: Sequence[Any], path: str, key: Callable[[Any], Hashable]) -> list[FieldError]:
    """One error for each entry with the key of an earlier one."""
    seen: set[Hashable] = set()
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        value = key(item)
        if value in seen:
            errors.append(duplicate(f"{path}[{index}]", value))
        seen.add(value)
    return errors


def map_errors(
    entries: dict[str, Any] | None,
    path: str,
    check_key: Callable[[str, str], list[FieldError]],
    check: Callable[[Any, str], list[FieldError]],
    key_bytes: int,
) -> list[FieldError]:
    """The errors of a map; paths show at most ``key_bytes`` of a key, shortened in its middle."""
    errors: list[FieldError] = []
    for key, value in (entries or {}).items():
        errors += check_key(key, path)
        errors += check(value, f"{path}[{shortened(key, key_bytes)}]")
    return errors


def shortened(key: str, most_bytes: int) -> str:
    """The key, without its middle if it is longer than ``most_bytes``."""
    data = key.encode()
    if len(data) <= most_bytes:
        return key
    remaining = most_bytes - 3
    start, end = data[: (remaining + 1) // 2], data[len(data) - remaining // 2 :]
    return f"{start.decode(errors='replace')}...{end.decode(errors='replace')}"


def _error(path: str, kind: str, value: list[Any] | None, detail: str) -> FieldError:
    """``value`` is a list with the bad value, None if the text shows no value."""
    parts = [TITLES[kind]]
    if value is not None:
        parts.append(shown(value[0]))
    if detail:
        parts.append(detail)
    return FieldError(path, kind, ": ".join(parts))
