"""The tables of machine files: their fields, found by recording what the reader reads, and instance types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from driver.nvml.api import FabricInfo
from driver.nvml.pci_address import PciAddress
from fakegpu.machine import spec
from fakegpu.machine.fields import Fields
from tools.docs.lookup import marked
from tools.docs.lookup.marked import code, table

C = TypeVar("C", bound="str | None")


@dataclass(slots=True)
class ReadField:
    """How a field is read: the values that it takes, and its default."""

    takes: str
    default: str = ""
    is_required: bool = False


_PLACEHOLDER = "# placeholder: "

WORDS: dict[str, str] = marked.WORDS["machine_fields"]
"""The meaning of each field."""


class _Recorder(Fields):
    """A mapping that has every field, and records which fields are read and how."""

    def __init__(self, path: str, found: dict[str, ReadField]) -> None:
        super().__init__({})
        self._where, self._found, self._optional = path, found, set[str]()

    def __contains__(self, key: str) -> bool:
        # The reader asks whether a field exists only for optional ones.
        self._optional.add(key)
        return True

    def refuse(self, key: str, demand: str) -> None:
        """Do nothing: the values here are placeholders, which may be invalid."""

    def text(self, key: str, pattern: str = r".+", what: str = "text") -> str:  # noqa: ARG002 - as Fields has it
        self._note(key, what)
        return ""

    def name(self, key: str, names: Collection[str]) -> str:
        self._note(key, f"one of {', '.join(map(code, sorted(names)))}")
        return ""

    def number(self, key: str, minimum: int, default: int | None = None) -> int:
        self._note(
            key,
            f"whole number from {minimum}",
            None if default is None else _words_of(default, minimum),
        )
        return minimum

    def flag(self, key: str, *, default: bool) -> bool:
        self._note(key, "true or false", str(default).lower())
        return default

    def choice(self, key: str, values: tuple[C, ...], default: C) -> C:
        self._note(key, f"one of {', '.join(code(str(value)) for value in values)}", default or "")
        return default

    def texts(self, key: str) -> tuple[str, ...]:
        self._note(key, "list of texts", "")
        return ()

    def numbers(self, key: str) -> tuple[int, ...]:
        self._note(key, "list of whole numbers")
        return ()

    def number_lists(self, key: str) -> list[tuple[int, ...]]:
        self._note(key, "list of lists of whole numbers")
        return []

    def triples(self, key: str) -> list[tuple[int, int, int]]:
        self._note(key, "list of `[GPU, GPU, links]`", "")
        return []

    def address(self, key: str) -> PciAddress:
        self._note(key, '`"0000:17:00.0"`')
        return PciAddress(0, 0, 0, 0)

    def fabric(self) -> FabricInfo:
        super().fabric()
        return FabricInfo("completed", "00000000-0000-0000-0000-000000000000", 0)

    def child(self, key: str) -> Fields:
        return _Recorder(self._at(key), self._found)

    def named_child(
        self,
        key: str,
        names: tuple[str, ...],
        load: Callable[[str], dict[object, object]],  # noqa: ARG002 - as Fields has it
    ) -> Fields:
        child = self.child(key)
        if "like" in child:
            child.name("like", names)
        return child

    def items(self, key: str) -> Iterator[Fields]:
        yield _Recorder(f"{self._at(key)}[]", self._found)

    def _at(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def _note(self, key: str, takes: str, default: str | None = None) -> None:
        is_required = default is None and key not in self._optional
        self._found[self._at(key)] = ReadField(takes, default or "", is_required)


def _words_of(default: int, minimum: int) -> str:
    """A default in words; a default below the minimum means that the field is absent."""
    return str(default) if default >= minimum else ""


def read_fields() -> dict[str, ReadField]:
    """All fields of a machine file by their paths."""
    found: dict[str, ReadField] = {}
    spec.read_machine("any", _Recorder("", found))
    return found


def field_table() -> str:
    """All fields as a table; ValueError for a field without a meaning, or a meaning without a field."""
    found = read_fields()
    if set(found) != set(WORDS):
        raise ValueError(f"fields and words in machine_fields.py differ: {sorted(set(found) ^ set(WORDS))}")
    rows: Sequence[tuple[str, ...]] = [
        (
            code(path),
            found[path].takes,
            "required" if found[path].is_required else code(found[path].default),
            meaning,
        )
        for path, meaning in WORDS.items()
    ]
    return table(("field", "takes", "default", "says"), rows)


def instance_table() -> str:
    """The instance types, and what their files mark as placeholders."""
    rows = []
    for name in spec.instance_types():
        machine = spec.load_machine(name)
        product = machine.product
        lines = (spec.INSTANCE_TYPES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        marks = (line.removeprefix(_PLACEHOLDER) for line in lines if line.startswith(_PLACEHOLDER))
        rows.append(
            (
                code(name),
                f"{len(machine.slots)} x {product.name}",
                f"{(product.memory_bytes or 0) // 2**20:,}",
                "yes" if product.mig else "no",
                str(len(machine.slots[0].links)),
                ", ".join(marks),
            )
        )
    return table(("instance type", "GPUs", "MiB each", "MIG", "NVLinks each", "placeholder"), rows)
