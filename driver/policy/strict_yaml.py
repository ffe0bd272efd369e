"""Reads YAML in which a key may occur only once, and takes a document out of what it came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from driver.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """Plain YAML that refuses a repeated key; the SafeLoader would silently take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice[0]} appears more than once", node.start_mark
            )
        return super().construct_mapping(node, deep)


def load_strictly(text: str | bytes) -> Any:
    """The single document in ``text``; raises yaml.YAMLError, and UnicodeDecodeError for malformed bytes."""
    return yaml.load(text, _StrictLoader)  # noqa: S506 - a SafeLoader, only stricter


def load_all_strictly(text: str | bytes) -> list[Any]:
    """All documents in ``text``, those of a Kubernetes List one by one; raises as ``load_strictly`` does."""
    found: list[Any] = []
    for one in yaml.load_all(text, _StrictLoader):
        is_list = isinstance(one, dict) and one.get("kind") == "List"
        found += one.get("items") or () if is_list else [one]
    return [one for one in found if one is not None]


def load_wrapped(text: str | bytes, name: str, *places: str, what: str = "configuration") -> tuple[str, Any]:
    """The document of a configuration with its path in ``text``, which is empty if it stands there alone.

    It is taken from among other objects, out of a ConfigMap, whose texts are at ``data``, or out of a chart's
    values, where it is at one of ``places``. Raises as ``load_strictly`` does, and ConfigError, with ``name``
    for the text, if there are several, or only objects of Kubernetes. ``what`` it should be is for the error.
    """
    documents = load_all_strictly(text)
    found = [(at, _at(document, at)) for document in documents for at in _places(document, places)]
    if documents and not found:
        kinds = ", ".join(dict.fromkeys(str(document["kind"]) for document in documents))
        raise ConfigError(
            f"{name} is a Kubernetes manifest ({kinds}), not a {what}", f"name the file of the {what}"
        )
    if len(found) > 1:
        raise ConfigError(f"{name} has {len(found)} documents of which each may be meant", "leave one in it")
    return found[0] if found else ("", None)


def _places(document: Any, places: Sequence[str]) -> Sequence[str]:
    if not isinstance(document, dict) or "kind" not in document:
        return [one for one in places if _at(document, one) is not None] or [""]
    return ["data"] if document["kind"] == "ConfigMap" else []


def _at(value: Any, place: str) -> Any:
    for name in filter(None, place.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value
