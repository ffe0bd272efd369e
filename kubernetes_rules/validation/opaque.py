"""Checks the parameters that a claim or a class has for a driver."""

from __future__ import annotations

import json
from typing import Any

from kubernetes_rules.validation.errors import OMITTED, FieldError, invalid, required, too_long
from kubernetes_rules.validation.names import driver_name_errors

Object = dict[str, Any]

_MOST_BYTES = 10 * 1024


def configuration_errors(config: Object, path: str) -> list[FieldError]:
    """The errors of a configuration's opaque part."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    errors = driver_name_errors(opaque.get("driver") or "", f"{path}.opaque.driver")
    return errors + raw_errors(opaque.get("parameters"), f"{path}.opaque.parameters")


def raw_errors(value: Any, path: str) -> list[FieldError]:
    """The errors of a raw JSON object; None is as good as absent.

    Its length is that of its compact form, which is what the API's clients send.
    """
    if value is None:
        return [required(path)]
    if len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _MOST_BYTES:
        return [too_long(path, _MOST_BYTES)]
    if not isinstance(value, dict):
        return [invalid(path, OMITTED, "must be a valid JSON object")]
    return []
