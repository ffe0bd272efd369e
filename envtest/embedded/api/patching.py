"""Applies merge patches (RFC 7396), JSON patches (RFC 6902) and strategic merge patches.

A strategic merge patch, which kubectl sends, merges lists of objects by the key that their type names, such
as the name of a container. Keys that begin with a dollar sign are directives.
"""

from __future__ import annotations

import copy
from typing import Any

from envtest.embedded.api.statuses import Refused, plain_go_error
from envtest.embedded.schema.types import FieldType

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
_PATCH_TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)
_CUSTOM_PATCH_TYPES = (JSON_PATCH, MERGE, APPLY)

# The limit of kube-apiserver (maxJSONPatchOperations).
_MOST_OPERATIONS = 10_000

_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"


def check_patch_type(content_type: str, *, is_custom: bool) -> None:
    """Raises Refused (415) for a kind of patch that objects, or custom objects, do not take."""
    known = _CUSTOM_PATCH_TYPES if is_custom else _PATCH_TYPES
    if content_type not in known:
        text = "the body of the request was in an unknown format - accepted media types include: "
        raise Refused(415, text + ", ".join(known))


def patched(stored: dict[str, Any], patch: Any, content_type: str, kind: FieldType) -> dict[str, Any]:
    """The object, of the type ``kind``, after the patch; ``stored`` is left alone.

    Raises Refused (400, 413, 422) for a patch that cannot be applied.
    """
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise Refused(400, "a JSON patch is a list of operations")
        return _json_patched(stored, patch)
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
            # Raises where there is nothing to replace, as RFC 6902 demands.
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
        # The hyphen is the place behind the last entry.
        return document, len(document) if parts[-1] == "-" else int(parts[-1])
    return document, parts[-1]


def strategic_merged(target: Any, patch: Any, kind: FieldType) -> Any:
    """``target`` after the patch, both of the type ``kind``; neither is changed.

    Raises Refused: 400, or 500 without a reason, which is what Kubernetes answers to most malformed patches.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get(_DIRECTIVE) == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != _DIRECTIVE}
    if patch.get(_DIRECTIVE) == "delete":
        return {}
    if patch.get(_DIRECTIVE) not in (None, "merge"):
        raise plain_go_error(f"unknown patch type: {_as_string(patch[_DIRECTIVE])} in map: {_go_text(patch)}")
    return _merged_map(dict(target) if isinstance(target, dict) else {}, patch, kind)


def _merged_map(result: dict[str, Any], patch: dict[str, Any], kind: FieldType) -> dict[str, Any]:
    """``result``, which may be changed, after the patch."""
    if _RETAIN in patch:
        if not isinstance(patch[_RETAIN], list):
            raise Refused(400, "invalid patch format of retainKeys")
        # $retainKeys clears the other members of a union, such as rollingUpdate when the type becomes
        # Recreate.
        result = {key: value for key, value in result.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER.rstrip("/")):
            _check_order(value, key)
        elif key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            if isinstance(value, list) and isinstance(result.get(name), list):
                result[name] = [item for item in result[name] if item not in value]
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = _merged_field(result.get(key), value, kind.field_type(key), patch.get(_ORDER + key))
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(result.get(name), list):
            result[name] = _ordered(result[name], order, kind.field_type(name).merge_key)
    return result


def _merged_field(target: Any, patch: Any, kind: FieldType, order: list[Any] | None) -> Any:
    if isinstance(patch, dict):
        if "replace" in kind.strategies:
            return copy.deepcopy(patch)
        return strategic_merged(target, patch, kind)
    if not isinstance(patch, list) or "merge" not in kind.strategies:
        return copy.deepcopy(patch)
    before = target if isinstance(target, list) else []
    if not kind.merge_key:
        # A list of plain values, which is merged as a set.
        merged = [*before, *(item for item in patch if item not in before)]
        return merged if order is None else _ordered(merged, order, "")
    return _merged_list(before, patch, kind, order)


def _check_order(value: Any, key: str) -> None:
    """Check the value of a $setElementOrder; raises Refused (500) where it is not a list."""
    if key.startswith(_ORDER.rstrip("/")) and not isinstance(value, list):
        raise plain_go_error(f"expected a []interface {{}}, but received a {_go_kind(value)}")


def _merged_list(target: list[Any], patch: list[Any], kind: FieldType, order: list[Any] | None) -> list[Any]:
    # An entry that says replace and has no key means the whole list.
    key = kind.merge_key
    if any(
        isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" and key not in item for item in patch
    ):
        return [copy.deepcopy(item) for item in patch if item.get(_DIRECTIVE) != "replace"]
    result = list(target)
    for item in patch:
        if not isinstance(item, dict):
            raise plain_go_error(
                f"list element types are not identical: [{_go_text(target)} {_go_text(patch)}]"
            )
        if key not in item:
            raise plain_go_error(f"map: {_go_text(item)} does not contain declared merge key: {key}")
        index = next((at for at, one in enumerate(result) if one.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [one for one in result if one.get(key) != item[key]]
        elif index is None:
            result.append(strategic_merged({}, item, kind.item))
        else:
            result[index] = strategic_merged(result[index], item, kind.item)
    return result if order is None else _ordered(result, order, key)


def _ordered(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """The items in the order of the patch; those that it does not name stay before the ones they preceded.

    Raises Refused (500) for an order that cannot be read.
    """
    for entry in order if key else ():
        if not isinstance(entry, dict):
            raise plain_go_error(f"expected a map[string]interface {{}}, but received a {_go_kind(entry)}")
    wanted = [entry.get(key) if key else entry for entry in order]
    names = [item.get(key) if key and isinstance(item, dict) else item for item in items]
    named = sorted(
        (index for index, name in enumerate(names) if name in wanted), key=lambda at: wanted.index(names[at])
    )
    others = [index for index, name in enumerate(names) if name not in wanted]
    result: list[Any] = []
    while named and others:
        result.append(items[named.pop(0) if named[0] < others[0] else others.pop(0)])
    return result + [items[index] for index in (*named, *others)]


def _go_text(value: Any) -> str:
    """A JSON value as Go's %v prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "<nil>", True: "true", False: "false"}[value]
    return str(value)


def _as_string(value: Any) -> str:
    """A JSON value as Go's %s prints it."""
    return value if isinstance(value, str) else f"%!s({_go_kind(value)}={_go_text(value)})"


def _go_kind(value: Any) -> str:
    kinds: dict[type, str] = {
        bool: "bool",
        int: "int64",
        float: "float64",
        str: "string",
        list: "[]interface {}",
    }
    return kinds.get(type(value), "map[string]interface {}")
