"""Reads what a command printed for scripts, and holds it to the schema of its kind."""

import json
from pathlib import Path

import jsonschema

import gpuctl
from tests.clusters import Object

SCHEMAS = Path(gpuctl.__file__).with_name("schemas")


def schema_of(kind: str) -> Object:
    """The schema that ships for a kind."""
    found: Object = json.loads((SCHEMAS / f"{kind}.json").read_text())
    return found


def read_document(text: str, kind: str) -> Object:
    """The document, which is of this kind and as its schema says."""
    document: Object = json.loads(text)
    assert document["kind"] == kind
    jsonschema.Draft202012Validator(schema_of(kind)).validate(document)
    return document
