"""What commands print for scripts: documents with an apiVersion and a kind, and names in camelCase.

Each kind has a JSON Schema in ``gpuctl/schemas``. Fields are only added within a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

API_VERSION = "gpuctl.nvidia.com/v1"


def document(kind: str, content: Any) -> dict[str, Any]:
    """A document of a kind: the fields of a dataclass or of a mapping, below its head."""
    return {"apiVersion": API_VERSION, "kind": kind, **as_data(content)}


def as_data(value: Any) -> Any:
    """Plain data of a value: fields of dataclasses in camelCase, without those that are None.

    Keys of mappings are data, such as names of tiers, and stay as they are.
    """
    if is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in fields(value)}
        return {camel_case(name): as_data(one) for name, one in held.items() if one is not None}
    if isinstance(value, Mapping):
        return {str(key): as_data(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(one) for one in value]
    return value


def camel_case(name: str) -> str:
    """``claims_left`` as ``claimsLeft``."""
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)
