"""Generates the files of the chart that follow from other files.

``python -m tools.chart.generate`` writes them; with ``--check`` it exits with 1 if one is missing or stale.
``python -m tools.testbed.chart`` writes the manifests, for which it needs helm.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import textwrap
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from tools.chart.nvidia import nvidia_values, with_nvidia_values
from tools.chart.schema import meaning_of, schema_of
from tools.chart.tables import CHART, NVIDIA_VALUES
from tools.chart.values import Values

ROOT = Path(__file__).resolve().parents[2]
_VALUES_FILE_HEAD = """\
# The values of the chart, which docs/configuration.md shows as tables. NVIDIA's names for them are there too.
# Made from tools/chart/values.py by python -m tools.chart.generate.
"""
_COMMENT_WIDTH = 110


def _values_file(values: Any) -> str:
    """The text of values.yaml."""
    return (
        _VALUES_FILE_HEAD
        + "\n"
        + "\n".join("\n".join(part) + "\n" for part in _value_parts(values, 0)).rstrip("\n")
        + "\n"
    )


def _value_parts(values: Any, depth: int) -> list[list[str]]:
    """The lines of each field of a group of values."""
    hints = get_type_hints(type(values), include_extras=True)
    return [
        _value_lines(field.name, getattr(values, field.name), meaning_of(hints[field.name]), depth)
        for field in dataclasses.fields(values)
    ]


def _value_lines(name: str, value: Any, meaning: str, depth: int) -> list[str]:
    indent = "  " * depth
    # The names of pages and fields have hyphens.
    wrapped = textwrap.wrap(meaning, _COMMENT_WIDTH - len(indent) - 2, break_on_hyphens=False)
    lines = [f"{indent}# {line}" for line in wrapped]
    if dataclasses.is_dataclass(value):
        inner = [line for part in _value_parts(value, depth + 1) for line in part]
        return [*lines, f"{indent}{name}:", *inner]
    if isinstance(value, dict | list) and value:
        text = yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        return [*lines, f"{indent}{name}:", *(f"{indent}  {line}" for line in text.splitlines())]
    # JSON is YAML, and quotes an empty text; Python would write True.
    return [
        *lines,
        f"{indent}{name}: {json.dumps(value) if value in ('', [], {}) or isinstance(value, bool) else value}",
    ]


def generated() -> dict[Path, str]:
    """The texts of the generated files, by path."""
    theirs = nvidia_values(NVIDIA_VALUES)
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **with_nvidia_values(schema_of(Values), theirs),
    }
    return {
        CHART / "values.yaml": _values_file(Values()),
        CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def stale() -> list[Path]:
    """The files that are missing or differ."""
    return [file for file, text in generated().items() if not file.is_file() or file.read_text() != text]


def main() -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the chart's values, their schema and their page.")
    parser.add_argument("--check", action="store_true", help="only say which files are stale")
    if parser.parse_args().check:
        names = stale()
        for file in names:
            sys.stderr.write(f"{file.relative_to(ROOT)} is stale: run python -m tools.chart.generate\n")
        return 1 if names else 0
    for file, text in generated().items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
