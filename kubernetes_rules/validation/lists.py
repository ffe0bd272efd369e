"""Checks lists and maps: how many entries, each entry, and that none is there twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kubernetes_rules.validation.errors import FieldError, duplicate, too_many


def list_errors(
    items: Sequence[Any] | None,
    path: str,
    most: int | None,
    check: Callable[[Any, str], list[FieldError]],
    key: Callable[[Any], Hashable] | None = None,
) -> list[FieldError]:
    """The errors of a list; one with more than ``most`` entries is not looked into.

    With ``key`` no two entries may have the same.
    """
    items = items or []
    if most is not None and len(items) > most:
        return [too_many(path, len(items), most)]
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        errors += check(item, f"{path}[{index}]")
    return errors if key is None else errors + duplicate_errors(items, path, key)


def duplicate_errors(items: Sequence[Any], path: str, key: Callable[[Any], Hashable]) -> list[FieldError]:
    """One error for each entry whose key an earlier one has."""
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
    most: int | None,
    check_key: Callable[[str, str], list[FieldError]],
    check: Callable[[Any, str], list[FieldError]],
    key_bytes: int,
) -> list[FieldError]:
    """The errors of a map; a key is shown in a path with at most ``key_bytes``, cut in its middle."""
    entries = entries or {}
    if most is not None and len(entries) > most:
        return [too_many(path, len(entries), most)]
    errors: list[FieldError] = []
    for key, value in entries.items():
        errors += check_key(key, path)
        errors += check(value, f"{path}[{shortened(key, max(key_bytes, 16))}]")
    return errors


def shortened(key: str, most_bytes: int) -> str:
    """The key with its middle left out where it is longer than that."""
    data = key.encode()
    if len(data) <= most_bytes:
        return key
    remaining = most_bytes - 3
    start, end = data[: (remaining + 1) // 2], data[len(data) - remaining // 2 :]
    return f"{start.decode(errors='replace')}...{end.decode(errors='replace')}"
