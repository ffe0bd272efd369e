"""The tables of the fields of opaque configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driver.claims.opaque import API_VERSION
from tools.docs.lookup.marked import WORDS, code, table


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its path, with a value that is valid and one that is refused, which tests check.

    ``beside`` are the other fields that the document needs.
    """

    path: str
    type: str
    meaning: str
    taken: Any
    refused: Any
    limits: str = ""
    default: str = ""
    beside: Mapping[str, Any] | None = None

    def document(self, kind: str, value: Any) -> dict[str, Any]:
        """A document of this kind with this value in the field."""
        made: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": kind,
            **json.loads(json.dumps(self.beside or {})),
        }
        *above, last = self.path.split(".")
        at = made
        for name in above:
            at = at.setdefault(name, {})
        at[last] = value
        return made


_OWN = {kind: tuple(Field(**one) for one in fields) for kind, fields in WORDS["claim_fields"].items()}
FIELDS: Mapping[str, tuple[Field, ...]] = {
    "GpuConfig": _OWN["GpuConfig"],
    "MigDeviceConfig": tuple(one for one in _OWN["GpuConfig"] if ".timeSlicingConfig." not in one.path),
    "VfioDeviceConfig": _OWN["VfioDeviceConfig"],
}
"""The fields of each kind of document."""


def field_tables() -> str:
    """A table for each kind of document."""
    return "\n".join(_part(kind, fields) for kind, fields in FIELDS.items())


def _part(kind: str, fields: tuple[Field, ...]) -> str:
    rows = [
        (code(one.path), one.type, one.limits, one.default, one.meaning, code(json.dumps(one.taken)))
        for one in fields
    ]
    return f"### {kind}\n{table(('field', 'type', 'limits', 'default', 'meaning', 'example'), rows)}"
