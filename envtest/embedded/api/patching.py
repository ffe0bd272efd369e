"""Applies merge patches (RFC 7396) and JSON patches (RFC 6902), and finds out what kind a patch is of."""

from __future__ import annotations

import copy
from typing import Any

from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.strategic_merge import strategic_merged
from envtest.embedded.schema.types import FieldType

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_PATCH_TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def patched(
    stored: dict[str, Any], patch: Any, content_type: str, kind: FieldType, problems: list[str]
) -> dict[str, Any]:
    """The object, of the type ``kind``, after the patch; ``stored`` is left alone.

    Adds to ``problems`` what strict validation of fields finds wrong with the patch itself. Raises Refused
    (400, 413, 415, 422) for a patch that cannot be applied.
    """
    if content_type == JSON_PATCH:
        return json_patched(stored, _operations(patch, problems))
    head = "" if content_type == STRATEGIC else "error decoding patch: "
    if content_type == STRATEGIC:
        return strategic_merged(stored, _object({} if patch is None else patch, head), kind)
    if patch is None:
        raise Refused(400, "Invalid JSON Patch")
    merged = _merged(stored, _object(patch, head))
    assert isinstance(merged, dict)
    return merged


def check_patch_type(content_type: str) -> None:
    """Raises Refused (415) for a kind of patch that objects do not take."""
    if content_type not in _PATCH_TYPES:
        raise Refused(415, "415: Unsupported Media Type", details={})


def _object(patch: Any, head: str) -> dict[str, Any]:
    if isinstance(patch, dict):
        return patch
    raise _undecodable(head, patch, "value of type map[string]interface {}")


def _undecodable(head: str, value: Any, target: str) -> Refused:
    return Refused(400, f"{head}json: cannot unmarshal {type(value).__name__} into Go {target}")


def _operations(patch: Any, problems: list[str]) -> list[dict[str, Any]]:
    """The operations of a JSON patch; raises Refused (400, 413)."""
    head = "error decoding patch: "
    if not isinstance(patch, list | None):
        raise _undecodable(head, patch, "value of type []handlers.jsonPatchOp")
    listed = patch or []
    for index, operation in enumerate(listed):
        if not isinstance(operation, dict | None):
            raise _undecodable(head, operation, "value of type handlers.jsonPatchOp")
        for name, value in (operation or {}).items():
            if name not in ("op", "path", "from", "value"):
                problems.append(f'json patch unknown field "[{index}].{name}"')
            elif name != "value" and not isinstance(value, str | None):
                raise _undecodable(head, value, f"struct field jsonPatchOp.{name} of type string")
    return [operation or {} for operation in listed]


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
    # In this order unknown fields are reported.
    return dict(sorted(result.items()))


def json_patched(stored: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902 without move and copy; raises Refused."""
    result: dict[str, Any] = copy.deepcopy(stored)
    for operation in operations:
        try:
            _apply_operation(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            # Kubernetes does not tell which operation failed.
            text = "the server rejected our request due to an error in our request"
            raise Refused(422, text, details={}) from error
    # In this order wrong fields are found.
    return dict(sorted(result.items()))


def _apply_operation(document: dict[str, Any], operation: dict[str, Any]) -> None:
    path, value = operation["path"], copy.deepcopy(operation.get("value"))
    if path == "" and operation.get("op") == "replace" and isinstance(value, dict):
        document.clear()
        document.update(value)
        return
    match operation.get("op"):
        case "add":
            _add(document, path, value)
        case "replace":
            holder, last = _place(document, path)
            # A list has to have the entry, a map need not have the field.
            if isinstance(holder, list):
                _ = holder[last]
            holder[last] = value
        case "remove":
            holder, last = _place(document, path)
            del holder[last]
        case "test":
            holder, last = _place(document, path)
            found = holder[last] if isinstance(holder, list) else holder.get(last)
            if found != value:
                raise ValueError("test failed")
        case unknown:
            raise ValueError(unknown)


def _add(document: dict[str, Any], path: str, value: Any) -> None:
    holder, last = _place(document, path)
    if isinstance(holder, list):
        if not 0 <= last <= len(holder):
            raise IndexError(last)
        holder.insert(last, value)
    else:
        holder[last] = value


def _place(document: Any, path: str) -> tuple[Any, Any]:
    """What holds the value at a JSON pointer, and its key or index there."""
    # The library does not look at what is before the first slash.
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in parts[:-1]:
        document = document[int(part)] if isinstance(document, list) else document[part]
    if isinstance(document, list):
        # The hyphen is the place behind the last entry.
        return document, len(document) if parts[-1] == "-" else int(parts[-1])
    if not isinstance(document, dict):
        raise TypeError(path)
    return document, parts[-1]
