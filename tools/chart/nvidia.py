"""The values of NVIDIA's chart, and what this chart does with them: ``deploy/chart/nvidia-values.yaml``."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.chart.schema import Object


@dataclass(frozen=True, slots=True)
class NvidiaValue:
    """A value of NVIDIA's chart: it ``becomes`` a value of this chart, or is ``refused`` with a sentence.

    Values that are ``passed_over`` are accepted and ignored, since they ask for what this driver does anyway.
    """

    path: str
    becomes: str = ""
    refused: str = ""
    words: str = ""
    passed_over: tuple[Any, ...] = ()

    def description(self) -> str:
        """The sentence about it in docs/configuration.md and in the schema."""
        ignored = ", ".join(f"`{_yaml_word(one)}`" for one in self.passed_over)
        but = f"; accepted without effect: {ignored}" if ignored else ""
        if self.becomes:
            return f"`{self.becomes}`{': ' + self.words if self.words else ''}{but}"
        return (self.words or f"refused: {self.refused}") + but


def _yaml_word(value: Any) -> str:
    """A value in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=200).removesuffix("...\n").strip()


def nvidia_values(file: Path) -> list[NvidiaValue]:
    """The values of the file."""
    return [
        NvidiaValue(
            one["path"],
            one.get("becomes", ""),
            one.get("refused", ""),
            one.get("words", ""),
            tuple(one.get("passedOver", ())),
        )
        for one in yaml.safe_load(file.read_text())["values"]
    ]


def with_nvidia_values(schema: Object, theirs: list[NvidiaValue]) -> Object:
    """A schema that lets NVIDIA's values through to the templates, which accept or refuse them."""
    # The schema refuses unknown names. Only the templates can refuse these with a sentence of their own.
    widened = copy.deepcopy(schema)
    for one in theirs:
        inner, *names = widened, *one.path.split(".")
        for name in names[:-1]:
            inner = inner["properties"].setdefault(
                name, {"type": "object", "additionalProperties": False, "properties": {}}
            )
            inner.setdefault("properties", {})
        inner["properties"].setdefault(
            names[-1], {"description": f"A value of NVIDIA's chart. {one.description()}"}
        )
    return widened
