"""Reads YAML in which a key may occur only once."""

from __future__ import annotations

from typing import Any

import yaml


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
