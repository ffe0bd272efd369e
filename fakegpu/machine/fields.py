"""Takes typed fields out of a machine file's YAML and collects every error with its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar
from uuid import UUID

from driver.nvml.api import FabricInfo
from driver.nvml.pci_address import PciAddress

C = TypeVar("C", bound="str | None")

_NOWHERE = PciAddress(0, 0, 0, 0)


class Fields:
    """One mapping of the file; all mappings of a file share one list of ``errors``.

    A wrong field adds an error and is read as an empty value, so that one reading finds all errors.
    """

    def __init__(self, document: object, path: str = "", errors: list[str] | None = None) -> None:
        self.errors: list[str] = [] if errors is None else errors
        self._path = path
        self._taken: set[str] = set()
        self._fields: dict[object, object] = document if isinstance(document, dict) else {}
        if not isinstance(document, dict):
            self.errors.append(f"{path or 'the file'}: must be a mapping")

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def holds(self, key: str, kind: type[dict[Any, Any] | list[Any]]) -> bool:
        """Whether the field is a mapping or a list, where it may also be the name of a file with one."""
        return isinstance(self._fields.get(key), kind)

    def refuse(self, key: str, demand: str) -> None:
        """Add an error that says what the field has to be."""
        self.errors.append(f"{self._at(key)}: {demand}")

    def refuse_unknown(self) -> None:
        """Add an error for every field that was not read: a misspelled one must not pass silently."""
        for key in self._fields:
            if key not in self._taken:
                self.refuse(str(key), "unknown field")

    def text(self, key: str, pattern: str = r".+", what: str = "text, in quotes if it is a number") -> str:
        """A required text that matches the whole pattern; ``what`` describes it in the error message."""
        value = self._take(key)
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        self.refuse(key, f"must be a {what}")
        return ""

    def name(self, key: str, names: Collection[str]) -> str:
        """A required text, one of these names."""
        value = self._take(key)
        if isinstance(value, str) and value in names:
            return value
        self.refuse(key, f"must be one of {', '.join(sorted(names))}")
        return ""

    def number(self, key: str, minimum: int, default: int | None = None) -> int:
        """A whole number; required if there is no default."""
        if key not in self and default is not None:
            return default
        value = self._take(key)
        # bool is a subclass of int, and YAML reads "yes" and "on" as bools.
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        self.refuse(key, f"must be a whole number from {minimum}")
        return minimum

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._take(key) if key in self else default
        if not isinstance(value, bool):
            self.refuse(key, "must be true or false")
        return value is True

    def choice(self, key: str, values: tuple[C, ...], default: C) -> C:
        """One of the values."""
        if key not in self:
            return default
        taken = self._take(key)
        for value in values:
            if value == taken:
                return value
        self.refuse(key, f"must be one of {', '.join(map(str, values))}")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; none by default."""
        value = self._take(key) if key in self else []
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.refuse(key, "must be a list of texts")
        return ()

    def numbers(self, key: str) -> tuple[int, ...]:
        """A required list of whole numbers, none negative."""
        value = self._take(key)
        if isinstance(value, list) and all(type(item) is int and item >= 0 for item in value):
            return tuple(value)
        self.refuse(key, "must be a list of whole numbers")
        return ()

    def number_lists(self, key: str) -> list[tuple[int, ...]]:
        """A required list of lists of whole numbers, none negative."""
        value = self._take(key)
        if isinstance(value, list) and all(
            isinstance(item, list) and all(type(n) is int and n >= 0 for n in item) for item in value
        ):
            return [tuple(item) for item in value]
        self.refuse(key, "must be a list of lists of whole numbers")
        return []

    def triples(self, key: str) -> list[tuple[int, int, int]]:
        """A list of [number, number, number], none negative; none by default."""
        value = self._take(key) if key in self else []
        items = value if isinstance(value, list) else [value]
        good = [
            (item[0], item[1], item[2])
            for item in items
            if isinstance(item, list) and len(item) == 3 and all(type(n) is int and n >= 0 for n in item)
        ]
        if len(good) != len(items):
            self.refuse(key, "must be a list of [GPU, GPU, number of links]")
        return good

    def address(self, key: str) -> PciAddress:
        """A PCI address."""
        try:
            return PciAddress.parse(self.text(key))
        except ValueError as error:
            self.refuse(key, str(error))
            return _NOWHERE

    def fabric(self) -> FabricInfo:
        """This mapping as the machine's place in an NVLink fabric."""
        cluster = self.text(
            "cluster_uuid", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID in lower case"
        )
        info = FabricInfo(
            state=self.choice(
                "state", ("not-supported", "not-started", "in-progress", "completed"), default="completed"
            ),
            cluster_uuid=str(UUID(cluster)) if cluster else "",
            clique=self.number("clique", minimum=0),
        )
        self.refuse_unknown()
        return info

    def child(self, key: str) -> Fields:
        """A required mapping below this one."""
        return Fields(self._take(key), self._at(key), self.errors)

    def named_child(
        self, key: str, names: tuple[str, ...], load: Callable[[str], dict[object, object]]
    ) -> Fields:
        """A required mapping below this one, or the name of one; ``like`` in it names one to begin with."""
        value = self._take(key)
        own = value if isinstance(value, dict) else {"like": value}
        if "like" not in own:
            return Fields(own, self._at(key), self.errors)
        if own["like"] in names:
            rest = {name: taken for name, taken in own.items() if name != "like"}
            return Fields(load(str(own["like"])) | rest, self._at(key), self.errors)
        place, also = (f"{key}.like", "") if own is value else (key, "a mapping, or ")
        self.refuse(place, f"must be {also}one of {', '.join(names)}")
        return Fields({}, self._at(key), [])  # that its fields are missing says nothing more

    def items(self, key: str) -> Iterator[Fields]:
        """A required list of mappings."""
        value = self._take(key)
        if not isinstance(value, list):
            self.refuse(key, "must be a list")
            return
        for position, item in enumerate(value):
            yield Fields(item, f"{self._at(key)}[{position}]", self.errors)

    def _take(self, key: str) -> object:
        self._taken.add(key)
        return self._fields.get(key)

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
