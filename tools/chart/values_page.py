"""Writes ``docs/values.md``: the chart's values, and which of NVIDIA's chart are taken, as tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, get_type_hints

from tools.chart.nvidia import NvidiaValue
from tools.chart.schema import meaning_of

_HEAD = """\
# Values of the chart

`helm show values deploy/chart` shows them as a file. `values.schema.json` says what each may be, and helm
refuses a name that is not here. Combinations that cannot work are refused with a sentence. This page is made
from `tools/chart/values.py` by `python -m tools.chart.generate`.

| value | default | meaning |
|---|---|---|
"""
_THEIRS = """
## Values of NVIDIA's chart

Whoever comes from NVIDIA's chart (`dra-driver-nvidia-gpu`) can keep the values that mean something here under
their names. The others are refused by name, so that nobody believes in a value that does nothing; those that
say what is so anyway are passed over.

| value there | here |
|---|---|
"""


def values_page(values: Any, theirs: list[NvidiaValue]) -> str:
    """The text of the page."""
    ours = "".join(
        f"| `{path}` | {_code(default)} | {meaning} |\n" for path, default, meaning in leaves(values)
    )
    return _HEAD + ours + _THEIRS + "".join(f"| `{one.path}` | {one.said()} |\n" for one in theirs)


def leaves(values: Any, before: str = "") -> Iterator[tuple[str, Any, str]]:
    """The path, the default and the meaning of every value that is no group of values."""
    hints = get_type_hints(type(values), include_extras=True)
    for field in dataclasses.fields(values):
        value, path = getattr(values, field.name), f"{before}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value, meaning_of(hints[field.name])


def _code(default: Any) -> str:
    return f"`{default if isinstance(default, str) and default else json.dumps(default)}`"
