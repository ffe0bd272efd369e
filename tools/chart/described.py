"""How a value of the chart is described beside its type, which says too little of texts and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, that goes into the manifests as it is; the API server judges it."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a text has to look like: an ECMA regular expression that JSON schema understands."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Between:
    """The least and the greatest of a whole number; None for no bound."""

    least: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class OrEmpty:
    """An empty text is taken as well, for "not given"."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON schema of a value whose type says too little."""

    given: Object


def quantity() -> Schema:
    """An amount as Kubernetes writes it: 64Mi, 100m, or a number."""
    return Schema({"type": ["string", "number"], "pattern": "^[0-9.]+([eE][0-9]+|m|k|[KMGTPE]i?)?$"})


@dataclass(frozen=True, slots=True)
class Toggles:
    """A mapping with these keys and no others, each true or false."""

    names: tuple[str, ...]
