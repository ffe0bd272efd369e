"""The declaration of a value: its type, and how large it and its parts can be.

Source: k8s.io/apiserver/pkg/cel/types.go and escaping.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kubernetes_rules.cel.checker import RESERVED_WORDS
from kubernetes_rules.cel.types import Type

_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_UNESCAPES = {escape: text for text, escape in _ESCAPES.items()}
_ESCAPED_PART = re.compile(r"__|[-./]")
_UNESCAPED_PART = re.compile(r"__[^_]+__")
_NAME = re.compile(r"[A-Za-z_./\-][A-Za-z0-9_./\-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a value, and of its fields or of its keys and elements.

    ``most_elements`` are the most characters, bytes, elements or entries. ``least_bytes`` is the length of
    the shortest JSON. ``name`` says where in its declaration a list, a map or an object is.
    """

    kind: Type
    most_elements: int = 0
    least_bytes: int = 2
    fields: Mapping[str, Declared] = field(default_factory=dict)
    key: Declared | None = None
    element: Declared | None = None
    name: str = ""
    is_object: bool = False

    def objects(self) -> Iterator[tuple[str, dict[str, Type]]]:
        """The types of objects in the value, each with the types of its fields."""
        if self.is_object:
            yield self.kind.name, {name: one.kind for name, one in self.fields.items()}
        for part in (*self.fields.values(), self.element):
            if part is not None and (part.is_object or part.element is not None):
                yield from part.objects()


def escaped(name: str) -> str | None:
    """The name of a property in expressions, None if it cannot be written there (escaping.go, Escape)."""
    if name in RESERVED_WORDS:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return _ESCAPED_PART.sub(lambda found: _ESCAPES[found[0]], name)


def unescaped(name: str) -> str | None:
    """The property that a name in an expression stands for, None for a wrong escape."""
    if "__" not in name:
        return name
    if name[2:-2] in RESERVED_WORDS and name == f"__{name[2:-2]}__":
        return name[2:-2]
    parts = _UNESCAPED_PART.findall(name)
    if not all(part in _UNESCAPES for part in parts):
        return None
    return _UNESCAPED_PART.sub(lambda found: _UNESCAPES[found[0]], name)
