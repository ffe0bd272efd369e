"""Reads what a command printed for scripts, and holds it to the schema of its kind."""

import json
from pathlib import Path
from typing import Any

import jsonschema

import gpuctl

SCHEMAS = Path(gpuctl.__file__).with_name("schemas")


def schema_of(kind: str) -> dict[str, Any]:
    """The schema that ships for a kind."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return found


def read_document(text: str, kind: str) -> dict[str, Any]:
    """The document, which is of this kind and as its schema says."""
    document: dict[str, Any] = json.loads(text)
    assert document["kind"] == kind
    jsonschema.Draft202012Validator(schema_of(kind)).validate(document)
    return document
