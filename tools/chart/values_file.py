"""Writes ``values.yaml``: the defaults, each below a comment with its meaning."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import Any, get_type_hints

import yaml

from tools.chart.schema import meaning_of

_HEAD = """\
# The values of the chart. docs/values.md has them as a table, and those of NVIDIA's chart that are taken.
# Made from tools/chart/values.py by python -m tools.chart.generate.
"""
_WIDTH = 110


def values_file(values: Any) -> str:
    """The text of the file."""
    return _HEAD + "\n" + "\n".join("\n".join(part) + "\n" for part in _parts(values, 0)).rstrip("\n") + "\n"


def _parts(values: Any, depth: int) -> list[list[str]]:
    """The lines of each field."""
    hints = get_type_hints(type(values), include_extras=True)
    return [
        _field(field.name, getattr(values, field.name), meaning_of(hints[field.name]), depth)
        for field in dataclasses.fields(values)
    ]


def _field(name: str, value: Any, meaning: str, depth: int) -> list[str]:
    indent = "  " * depth
    lines = [f"{indent}# {line}" for line in textwrap.wrap(meaning, _WIDTH - len(indent) - 2)]
    if dataclasses.is_dataclass(value):
        inner = [line for part in _parts(value, depth + 1) for line in part]
        return [*lines, f"{indent}{name}:", *inner]
    if isinstance(value, dict | list) and value:
        text = yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        return [*lines, f"{indent}{name}:", *(f"{indent}  {line}" for line in text.splitlines())]
    return [
        *lines,
        f"{indent}{name}: {json.dumps(value) if value in ('', [], {}) or isinstance(value, bool) else value}",
    ]
