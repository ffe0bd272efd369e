"""Applies the patches of the API: merge patch, JSON patch, and apply with forced ownership."""

from __future__ import annotations

import copy
from typing import Any

from envtest.embedded.statuses import Refused

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def patched(stored: dict[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """The object after the patch; ``stored`` is left alone.

    Lists are replaced as a whole under MERGE, STRATEGIC and APPLY: list keys and field ownership are
    not kept here. Raises Refused (400, 415, 422) for a patch that cannot be applied.
    """
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise Refused(400, "a JSON patch is a list of operations")
        return _json_patched(stored, patch)
    if content_type not in (MERGE, STRATEGIC, APPLY):
        raise Refused(415, f"the patch type {content_type} is not supported")
    if not isinstance(patch, dict):
        raise Refused(400, "the patch has to be an object")
    merged = _merged(copy.deepcopy(stored), patch)
    assert isinstance(merged, dict)
    return merged


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _json_patched(stored: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902 without move and copy, which nobody here sends."""
    result = copy.deepcopy(stored)
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        try:
            _apply_operation(result, path, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Refused(422, f"the operation at {operation['path']} cannot be applied") from error
    return result


def _apply_operation(target: Any, path: list[str], operation: dict[str, Any]) -> None:
    for part in path[:-1]:
        target = target[int(part)] if isinstance(target, list) else target[part]
    last: Any = path[-1]
    if isinstance(target, list):
        last = len(target) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(target, list):
            target.insert(last, operation["value"])
        case "add":
            target[last] = operation["value"]
        case "replace":
            _ = target[last]
            target[last] = operation["value"]
        case "remove":
            del target[last]
        case "test" if target[last] != operation["value"]:
            raise ValueError("test failed")
        case "test":
            pass
        case unknown:
            raise ValueError(unknown)
