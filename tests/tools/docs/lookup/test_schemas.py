"""A schema follows from a dataclass as ``as_data`` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jsonschema
import pytest

from gpuctl.cli.output import document
from tools.docs.lookup.schemas import document_schema, schema_of


@dataclass(frozen=True)
class _Part:
    """A part of it."""

    size_bytes: int | None = None
    """How large it is."""


@dataclass(frozen=True)
class _Report:
    """What is there."""

    parts: tuple[_Part, ...]
    by_name: Mapping[str, bool]
    state: Literal["ok", "bad"] = "ok"


def test_what_is_printed_is_as_the_schema_says() -> None:
    printed = document("_Report", _Report((_Part(), _Part(5)), {"some_key": True}))

    jsonschema.Draft202012Validator(document_schema(_Report)).validate(printed)


def test_the_docstring_of_a_field_describes_it_and_a_field_that_may_be_none_is_not_required() -> None:
    assert schema_of(_Part) == {
        "description": "A part of it.",
        "type": "object",
        "properties": {"sizeBytes": {"description": "How large it is.", "type": "integer"}},
        "required": [],
    }


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="no schema"):
        schema_of(object)
