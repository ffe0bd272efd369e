"""Reads the fields of an object that nobody has looked at yet, and gathers all that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes_rules.quantity import format_bytes, parse_quantity


class Fields:
    """One object of the document: hands out its fields, and complains of those nobody asked for."""

    def __init__(self, value: Any, path: str, errors: list[str]) -> None:
        self.path, self.errors = path, errors
        self.values: dict[str, Any] = {}
        if isinstance(value, Mapping):
            self.values = {str(name): one for name, one in value.items()}
        elif value is not None:
            errors.append(f"{path or 'parameters'}: must be an object")

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, message: str) -> None:
        """Complain of a field."""
        self.errors.append(f"{self.at(name)}: {message}")

    def missing(self, name: str, wanted: str) -> None:
        """Complain of a field that has to be there, unless it was complained of already."""
        if not any(error.startswith(f"{self.at(name)}: ") for error in self.errors):
            self.wrong(name, f"is required and must be {wanted}")

    def nested(self, name: str) -> Fields:
        """The object that a field has; one without fields where it has none."""
        return Fields(self.values.pop(name, None), self.at(name), self.errors)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """The word that a field has, None where it has none of these."""
        value = self.values.pop(name, None)
        if value is None:
            return None
        if isinstance(value, str) and value in allowed:
            return value
        self.wrong(name, f"must be one of {', '.join(allowed)}")
        return None

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """Whether a field says so."""
        value = self.values.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
        return value is True

    def quantity_bytes(self, name: str, value: Any, least_bytes: int) -> int | None:
        """What the value of a field means in bytes; None where there is none, or none of at least so many."""
        if value is None:
            return None
        try:
            number = parse_quantity(str(value))
        except ValueError as error:
            self.wrong(name, str(error))
            return None
        if number < least_bytes:
            self.wrong(name, f"must be at least {format_bytes(least_bytes)}")
            return None
        return int(number)

    def end(self) -> None:
        """Complain of every field that nobody has asked for."""
        for name in self.values:
            self.wrong(name[:64], "unknown field")
