"""The fields of each type of the served kinds, read from types.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

Shape = Literal[
    "string",
    "bytes",
    "uint8",
    "int32",
    "int64",
    "number",
    "boolean",
    "quantity",
    "time",
    "microTime",
    "intOrString",
    "any",
    "struct",
    "list",
    "map",
]
_FILE = Path(__file__).with_name("types.json")


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field, of the entries of a list, or of the values of a map.

    ``ref`` names the type of a struct. ``of`` is the type of the entries of a list or of the values of a
    map. ``keys`` are the fields that identify the entries of a list under server-side apply (empty for a
    set, None for a list that is replaced as a whole). ``merge_key`` and ``strategies`` are those of a
    strategic merge patch. ``atomic`` says that a struct or a map has one owner as a whole. ``unset`` is how
    Go's json writes a field that is unset: as the zero of its type (!), as null (?), or not at all (-), even
    if a client has set it to this zero. Where ``unset`` is empty, the field is a pointer in Go, which tells
    the two apart.
    """

    shape: Shape
    ref: str = ""
    of: FieldType | None = None
    keys: tuple[str, ...] | None = None
    merge_key: str = ""
    strategies: tuple[str, ...] = ()
    atomic: bool = False
    unset: Literal["", "!", "?", "-"] = ""

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of a struct; none for everything else."""
        return fields_of(self.ref) if self.ref else {}

    @property
    def item(self) -> FieldType:
        """The type of the entries of a list or of the values of a map."""
        return self.of or ANY

    def field_type(self, name: str) -> FieldType:
        """The type of a field of a struct, or of a value of a map; ``ANY`` for an unknown field."""
        return self.item if self.shape == "map" else self.fields.get(name, self.item)


ANY = FieldType("any")


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields of a type by their names in JSON, and the names of those that Go's json writes always."""

    fields: dict[str, FieldType]
    written: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Document:
    kinds: dict[str, dict[str, str]]
    types: dict[str, dict[str, Any]]
    tags: dict[str, dict[str, list[str]]]
    known: dict[str, Struct] = field(default_factory=dict)


@cache
def _document() -> _Document:
    content = json.loads(_FILE.read_text())
    return _Document(content["kinds"], content["types"], content["tags"])


def type_of(api_version: str, kind: str) -> FieldType | None:
    """The type of a kind's objects, None for a kind that is not served."""
    name = _document().kinds.get(api_version, {}).get(kind)
    return None if name is None else FieldType("struct", name)


def tags_of(name: str) -> dict[str, list[str]]:
    """The protobuf tags of a type: each number with the field's name in JSON.

    After the name ``bytes`` follows where the values are bytes. An empty name means a part whose fields
    JSON has inline; its type follows.
    """
    return _document().tags[name]


def struct_of(name: str) -> Struct:
    """The type of that name, such as ``core.v1.Pod``."""
    document = _document()
    # Types refer to each other and to themselves, so each is read when it is asked for.
    if name not in document.known:
        fields = {key: _read(spec) for key, spec in document.types[name].items()}
        document.known[name] = Struct(
            fields, tuple(key for key, kind in fields.items() if kind.unset in ("!", "?"))
        )
    return document.known[name]


def fields_of(name: str) -> dict[str, FieldType]:
    """The fields of a type by their names in JSON."""
    return struct_of(name).fields


_ZEROS: dict[str, Any] = {"boolean": False, "quantity": "0", "string": "", "bytes": ""}


def zero_of(kind: FieldType) -> Any:
    """The value of a type that nobody has set, as Go's json writes it; a new one at each call."""
    if kind.shape == "struct":
        struct = struct_of(kind.ref)
        return {name: unset_value(struct.fields[name]) for name in struct.written}
    return _ZEROS.get(kind.shape, 0 if kind.shape in ("int32", "int64", "number", "intOrString") else None)


def unset_value(kind: FieldType) -> Any:
    """How a field without a value is written, for a field that is always written."""
    return zero_of(kind) if kind.unset == "!" else None


def _read(spec: Any) -> FieldType:
    if isinstance(spec, str):
        shape = spec.rstrip("!?-")
        return FieldType(shape, unset=spec[len(shape) :])  # type: ignore[arg-type] # the file has only these
    strategies = tuple(filter(None, spec.get("strategy", "").split(",")))
    merge_key, unset = spec.get("merge", ""), spec.get("unset", "")
    if "ref" in spec:
        return FieldType(
            "struct",
            spec["ref"],
            strategies=strategies,
            atomic=spec.get("atomic", False),
            unset=unset,
        )
    if "map" in spec:
        return FieldType("map", of=_read(spec["map"]), atomic=spec.get("atomic", False), unset=unset)
    keys = tuple(spec["keys"]) if "keys" in spec else None
    return FieldType(
        "list", of=_read(spec["list"]), keys=keys, merge_key=merge_key, strategies=strategies, unset=unset
    )
