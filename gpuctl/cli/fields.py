"""Holds a document that a user wrote to a JSON schema, and says what is wrong with the path of each field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema


def wrong_fields(schema: Mapping[str, Any], document: Any) -> list[str]:
    """What is wrong, as ``path: reason``; empty for a document that is right.

    The reason is the keyword ``says`` of the schema that is not met, or the validator's own words.
    """
    # ``says`` is no keyword of JSON Schema, and validators pass over those that they do not know.
    errors = jsonschema.Draft202012Validator(schema).iter_errors(document)
    # Several missing fields of one object are an error each, and each names all of them.
    return list(dict.fromkeys(line for error in sorted(errors, key=_place) for line in _lines(error)))


def _place(error: jsonschema.ValidationError) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.absolute_path).lstrip(
        "."
    )


def _lines(error: jsonschema.ValidationError) -> Iterator[str]:
    place = _place(error)
    document: Any = error.instance
    within = f"{place}." if place else ""
    # true and false are schemas, too, and say nothing.
    schema: Any = error.schema if isinstance(error.schema, Mapping) else {}
    said = schema.get("says", error.message)
    if error.validator == "required":
        yield from (f"{within}{name}: is missing" for name in schema["required"] if name not in document)
    elif error.validator == "additionalProperties" and error.validator_value is False:
        known = schema.get("properties", {})
        yield from (f"{within}{name}: unknown field" for name in document if name not in known)
    elif "propertyNames" in error.absolute_schema_path:
        yield f"{within}{document}: {said}"
    else:
        yield f"{place or 'the document'}: {said}"
