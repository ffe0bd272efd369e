"""Checks ConfigMaps and Secrets: their keys, their size, and what may not change.

Go: ValidateConfigMap, ValidateSecret and their updates in pkg/apis/core/validation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from kubernetes_rules.validation import names
from kubernetes_rules.validation.field import FieldError, all_invalid, forbidden, invalid, required, too_long

Object = dict[str, Any]

MOST_BYTES = 1024 * 1024
_ACCOUNT = "kubernetes.io/service-account.name"
_FIXED = "field is immutable when `immutable` is set"
_NO_JSON = "unexpected end of JSON input"
_HIDDEN = "<secret contents redacted>"
_NEEDED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/basic-auth": ("username", "password"),
}
_JSON_TYPES = frozenset({"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"})


def config_map_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of a ConfigMap, new or an update of ``old``."""
    errors = _immutable_errors(item, old, ("data", "binaryData"))
    texts, binary = item.get("data") or {}, item.get("binaryData") or {}
    for key in texts:
        errors += all_invalid(f"data[{key}]", key, names.config_key(key))
        if key in binary:
            errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        errors += all_invalid(f"binaryData[{key}]", key, names.config_key(key))
    if sum(len(text.encode()) for text in texts.values()) + _size(binary) > MOST_BYTES:
        # Go names the whole object so.
        errors.append(too_long("[]", MOST_BYTES))
    return errors


def secret_errors(item: Object, old: Object | None) -> list[FieldError]:
    """The errors of a Secret, new or an update of ``old``; its ``stringData`` is in ``data`` already."""
    errors: list[FieldError] = []
    if old is not None and item.get("type") != old.get("type"):
        errors.append(invalid("type", item.get("type") or "", "field is immutable"))
    errors += _immutable_errors(item, old, ("data",))
    data = item.get("data") or {}
    for key in data:
        errors += all_invalid(f"data[{key}]", key, names.config_key(key))
    if _size(data) > MOST_BYTES:
        errors.append(too_long("data", MOST_BYTES))
    return errors + _type_errors(item, data)


def _type_errors(item: Object, data: Object) -> list[FieldError]:
    """The errors of what a Secret has to contain by its type."""
    kind = item.get("type") or ""
    if kind == "kubernetes.io/service-account-token":
        annotations = item["metadata"].get("annotations") or {}
        return [] if annotations.get(_ACCOUNT) else [required(f"metadata.annotations[{_ACCOUNT}]")]
    keys = _NEEDED_KEYS.get(kind, ())
    # Of user name and password one is enough, and a private key must not be empty.
    if kind == "kubernetes.io/basic-auth" and any(key in data for key in keys):
        return []
    is_there: Callable[[str], bool] = lambda key: bool(data.get(key)) if "ssh" in kind else key in data  # noqa: E731
    errors = [required(f"data[{key}]") for key in keys if not is_there(key)]
    if not errors and kind in _JSON_TYPES:
        errors += _json_errors(f"data[{keys[0]}]", base64.b64decode(data[keys[0]]))
    return errors


def _json_errors(path: str, content: bytes) -> list[FieldError]:
    try:
        found = json.loads(content)
    except ValueError:
        text = content.decode(errors="replace").strip()
        wrong = f"invalid character '{text[0]}' looking for beginning of value" if text else _NO_JSON
        return [invalid(path, _HIDDEN, wrong)]
    if isinstance(found, dict) or found is None:
        return []
    kind = {str: "string", list: "array", bool: "bool"}.get(type(found), "number")
    text = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    return [invalid(path, _HIDDEN, text)]


def _immutable_errors(item: Object, old: Object | None, names_of_data: tuple[str, ...]) -> list[FieldError]:
    if old is None or not old.get("immutable"):
        return []
    errors = [] if item.get("immutable") else [forbidden("immutable", _FIXED)]
    return errors + [
        forbidden(name, _FIXED) for name in names_of_data if (item.get(name) or {}) != (old.get(name) or {})
    ]


def _size(values: Object) -> int:
    """How many bytes the values have that are written in base64."""
    return sum(len(text) // 4 * 3 - text.count("=") for text in values.values())
