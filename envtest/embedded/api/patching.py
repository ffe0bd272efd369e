"""Applies the patches of the API that need no memory: merge patch, JSON patch and strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.strategic import strategic_merged
from envtest.embedded.schema.types import FieldType

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)

_MOST_OPERATIONS = 10_000


def patched(stored: dict[str, Any], patch: Any, content_type: str, kind: FieldType) -> dict[str, Any]:
    """The object, of the type ``kind``, after the patch; ``stored`` is left alone.

    Raises Refused (400, 413, 415, 422) for a patch that cannot be applied.
    """
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise Refused(400, "a JSON patch is a list of operations")
        return _json_patched(stored, patch)
    if content_type not in (MERGE, STRATEGIC):
        raise Refused(
            415,
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(PATCH_TYPES),
        )
    if not isinstance(patch, dict):
        raise Refused(400, "the patch has to be an object")
    merged = strategic_merged(stored, patch, kind) if content_type == STRATEGIC else _merged(stored, patch)
    assert isinstance(merged, dict)
    return merged


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _json_patched(stored: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    """RFC 6902."""
    if len(operations) > _MOST_OPERATIONS:
        raise Refused(413, f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}")
    result: dict[str, Any] = copy.deepcopy(stored)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise Refused(400, "an operation of a JSON patch has op and path")
        try:
            _apply_operation(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            path = operation["path"]
            raise Refused(422, f"the operation {operation.get('op')} at {path} cannot be applied") from error
    return result


def _apply_operation(document: dict[str, Any], operation: dict[str, Any]) -> None:
    path = operation["path"]
    match operation["op"]:
        case "add":
            _add(document, path, copy.deepcopy(operation["value"]))
        case "replace":
            holder, last = _place(document, path)
            _ = holder[last]
            holder[last] = copy.deepcopy(operation["value"])
        case "remove":
            holder, last = _place(document, path)
            del holder[last]
        case "test":
            holder, last = _place(document, path)
            if holder[last] != operation["value"]:
                raise ValueError("test failed")
        case "move" | "copy" as kind:
            holder, last = _place(document, operation["from"])
            value = copy.deepcopy(holder[last])
            if kind == "move":
                del holder[last]
            _add(document, path, value)
        case unknown:
            raise ValueError(unknown)


def _add(document: dict[str, Any], path: str, value: Any) -> None:
    holder, last = _place(document, path)
    if isinstance(holder, list):
        if last > len(holder):
            raise IndexError(last)
        holder.insert(last, value)
    else:
        holder[last] = value


def _place(document: Any, path: str) -> tuple[Any, Any]:
    """What holds the value at a JSON pointer, and its key or index there."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parts[:-1]:
        document = document[int(part)] if isinstance(document, list) else document[part]
    if isinstance(document, list):
        return document, len(document) if parts[-1] == "-" else int(parts[-1])
    return document, parts[-1]
