"""What is wrong with a field, as apimachinery's field.Error says it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
NOT_FOUND = "FieldValueNotFound"

_TITLES = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    NOT_FOUND: "Not found",
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
        """The type in words, as the text begins."""
        return _TITLES[self.type]


def required(path: str, detail: str = "") -> FieldError:
    """A value that has to be there."""
    return _error(path, REQUIRED, None, detail)


def forbidden(path: str, detail: str) -> FieldError:
    """A value that must not be there."""
    return _error(path, FORBIDDEN, None, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value against the rules; None prints as JSON's null."""
    return _error(path, INVALID, [value], detail)


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    """A reference to what is not there."""
    return _error(path, NOT_FOUND, [value], detail)


def not_supported(path: str, value: str | list[str], supported: Iterable[str]) -> FieldError:
    """A value outside of an enumeration."""
    choices = ", ".join(json.dumps(choice) for choice in supported)
    return _error(path, NOT_SUPPORTED, [value], f"supported values: {choices}")


def duplicate(path: str, value: Any) -> FieldError:
    """An entry that is there twice; ``path`` is that of the second."""
    return _error(path, DUPLICATE, [value], "")


def too_long(path: str, most_bytes: int) -> FieldError:
    """A text above its limit."""
    return _error(path, TOO_LONG, None, f"may not be more than {most_bytes} bytes")


def too_many(path: str, count: int, most: int) -> FieldError:
    """A list or map above its limit."""
    return _error(path, TOO_MANY, [count], f"must have at most {most} item{'' if most == 1 else 's'}")


def all_invalid(path: str, value: Any, details: Sequence[str]) -> list[FieldError]:
    """One Invalid for each of ``details``."""
    return [invalid(path, value, detail) for detail in details]


def unique(errors: Iterable[FieldError]) -> list[FieldError]:
    """The errors in order without repetition."""
    return list(dict.fromkeys(errors))


def _error(path: str, kind: str, value: list[Any] | None, detail: str) -> FieldError:
    """``value`` is the bad value in a list, None when the text shows none."""
    parts = [_TITLES[kind]]
    if value is not None:
        parts.append(json.dumps(value[0], separators=(",", ":"), ensure_ascii=False))
    if detail:
        parts.append(detail)
    return FieldError(path, kind, ": ".join(parts))
