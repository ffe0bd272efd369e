"""Reads what is applied: whether it is an object of the resource, and whether its fields are of their types.

Types are checked, and errors worded, as structured-merge-diff does (its package typed).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envtest.embedded.api.go_texts import go_kind, go_text
from envtest.embedded.api.requests import Request
from envtest.embedded.api.resources import Resource
from envtest.embedded.api.server_side_apply import entry_step, shown
from envtest.embedded.api.statuses import Refused, details_of, plain_go_error
from envtest.embedded.api.writing import check_name
from envtest.embedded.schema.types import FieldType

Object = dict[str, Any]

_NUMBERS = ("int32", "int64", "number")
_ANY_SCALAR = ("quantity", "intOrString")


def check_config(resource: Resource, kind: FieldType, config: Any) -> None:
    """Check the body of an apply; raises Refused (400; 500 for wrong types, as Kubernetes answers)."""
    if config is not None and not isinstance(config, dict):
        found = {str: "string", list: "array", bool: "bool"}.get(type(config), "number")
        text = "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal"
        raise Refused(400, f"{text} {found} into Go value of type map[string]interface {{}}")
    config = config or {}
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise Refused(400, "metadata.managedFields must be nil")
    named_kind = (config.get("apiVersion") or "", config.get("kind") or "")
    if named_kind != (resource.api_version, resource.kind):
        raise Refused(400, f"invalid object type: {_described(*named_kind)}")
    if errors := list(_type_errors(config, kind, "")):
        named = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        listed = errors[0] if len(errors) == 1 else "errors:" + "".join(f"\n  {error}" for error in errors)
        raise plain_go_error(
            f"failed to create typed patch object ({named}; {_described(*named_kind)}): {listed}"
        )


def _described(api_version: str, kind: str) -> str:
    """A kind as Go's schema.GroupVersionKind prints it."""
    return f"{'' if '/' in api_version else '/'}{api_version}, Kind={kind}"


def check_place(request: Request, resource: Resource, config: Object, *, is_new: bool) -> None:
    """Check that the config is about the object in the request's path; raises Refused (400, 409)."""
    metadata = config.get("metadata") or {}
    uid = metadata.get("uid")
    if is_new and uid:
        text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        head = f'Operation cannot be fulfilled on {resource.qualified_name} "{request.name}": '
        details = details_of(resource.group, resource.plural, request.name)
        raise Refused(409, head + text, details=details)
    if is_new or metadata.get("name"):
        check_name(request, metadata)


def _type_errors(value: Any, kind: FieldType, path: str) -> Iterator[str]:
    """What is wrong with the types of a value, each with its path."""
    if value is None or kind.shape == "any":
        return
    if kind.shape in ("struct", "map"):
        yield from _map_errors(value, kind, path)
    elif kind.shape == "list":
        yield from _list_errors(value, kind, path)
    elif wrong := _scalar_error(value, kind):
        yield _at(path, wrong)


def _scalar_error(value: Any, kind: FieldType) -> str:
    """What is wrong with a value that has no parts, empty if it is right."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind.shape in _NUMBERS:
        return "" if is_number else f"expected numeric (int or float), got {go_kind(value)}"
    if kind.shape == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got {_go_value(value)}"
    if kind.shape in _ANY_SCALAR:
        return f"expected any scalar, got {_go_value(value)}" if isinstance(value, (dict, list)) else ""
    text = f"&value.valueUnstructured{{Value:{_go_literal(value)}}}"
    return "" if isinstance(value, str) else f"expected string, got {text}"


def _map_errors(value: Any, kind: FieldType, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _at(path, f"expected map, got {_go_value(value)}")
        return
    for name, item in value.items():
        if kind.shape == "struct" and name not in kind.fields:
            yield _at(f"{path}.{name}", "field not declared in schema")
        else:
            yield from _type_errors(item, kind.field_type(name), f"{path}.{name}")


def _list_errors(value: Any, kind: FieldType, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield _at(path, f"expected list, got {_go_value(value)}")
        return
    seen = set()
    for index, item in enumerate(value):
        here = f"{path}[{index}]"
        if kind.keys is not None:
            if wrong := _entry_error(item, kind.keys):
                yield _at(path, f"element {index}: {wrong}")
                return
            step = entry_step(item, kind)
            here = path + shown((step,))
            if step in seen:
                yield _at(path, f"duplicate entries for key {shown((step,))}")
            seen.add(step)
        yield from _type_errors(item, kind.item, here)


def _entry_error(item: Any, keys: tuple[str, ...]) -> str:
    """Why an entry of a list cannot be identified, empty if it can be."""
    if keys:
        head = "associative list with keys"
        if item is None:
            return f"{head} may not have a null element"
        if not isinstance(item, dict):
            return f"{head} may not have non-map elements"
        return ""
    if isinstance(item, list):
        return "not supported: associative list with lists as elements"
    wrong = {dict: "a map type", type(None): "an explicit null"}.get(type(item))
    return f"associative list without keys has an element that's {wrong}" if wrong else ""


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _go_value(value: Any) -> str:
    """A value as Go prints the pointer to it that structured-merge-diff has."""
    return f"&{{{go_text(value)}}}"


def _go_literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_literal, value))}}}"
    return go_text(value)
