"""Sets of the fields of an object, as managedFields keeps them (FieldsV1), and what they select."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any

from envtest.embedded.schema.types import FieldType

Path = tuple[str, ...]
"""Steps into an object: ``f:name`` a field, ``k:{...}`` the list entry with these keys, ``v:...`` a value."""

_ANY = FieldType("any")
_KEY_DEFAULTS = {"protocol": "TCP"}
"""What a key of a list is in an entry without it: the only ones with a default are those of ports."""


def paths_of(value: Any, kind: FieldType, path: Path = ()) -> Iterator[Path]:
    """The paths of all that somebody who wrote ``value`` owns: leaves, and the entries of keyed lists."""
    if kind.shape in ("struct", "map") and isinstance(value, dict) and not kind.atomic and value:
        for name, item in value.items():
            yield from paths_of(item, _field(kind, name), (*path, f"f:{name}"))
    elif kind.shape == "list" and isinstance(value, list) and kind.keys is not None and value:
        for item in value:
            here = (*path, entry_step(item, kind))
            yield here
            if kind.keys:
                yield from paths_of(item, kind.of or _ANY, here)
    elif path:
        yield path


def entry_step(item: Any, kind: FieldType) -> str:
    """The step to an entry of a list that is told apart by keys or, without any, by its value."""
    if not kind.keys:
        return "v:" + json.dumps(item, separators=(",", ":"))
    told_apart = {**{key: _KEY_DEFAULTS[key] for key in kind.keys if key in _KEY_DEFAULTS}, **item}
    keys = {key: told_apart[key] for key in sorted(kind.keys) if key in told_apart}
    return "k:" + json.dumps(keys, separators=(",", ":"))


def value_at(value: Any, kind: FieldType, path: Path) -> Any:
    """What is at ``path``, None where nothing is."""
    for step in path:
        if step.startswith("f:"):
            name = step[2:]
            value = value.get(name) if isinstance(value, dict) else None
            kind = _field(kind, name)
        else:
            value = next((item for item in value or [] if entry_step(item, kind) == step), None)
            kind = kind.of or _ANY
        if value is None:
            return None
    return value


def without(value: Any, kind: FieldType, paths: Iterable[Path]) -> Any:
    """A copy of ``value`` without what is at ``paths``, and without the maps and lists that this empties."""
    result = copy.deepcopy(value)
    for path in sorted(paths, key=len):
        # A list entry goes before the fields that tell it apart.
        _remove(result, kind, path)
    return result


def _remove(value: Any, kind: FieldType, path: Path) -> None:
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return
        if not rest:
            del value[name]
            return
        child = value[name]
        _remove(child, _field(kind, name), rest)
        if child in ({}, []):
            del value[name]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if entry_step(item, kind) == step:
                if rest:
                    _remove(item, kind.of or _ANY, rest)
                else:
                    del value[index]
                return


def to_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """The paths as FieldsV1 writes them; an entry that is owned itself has a ``.``."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        if path[-1][:2] == "k:":
            node["."] = {}
    return tree


def from_fields(tree: Any, path: Path = ()) -> Iterator[Path]:
    """The paths that FieldsV1 holds."""
    if not isinstance(tree, dict):
        return
    for step, rest in tree.items():
        if step == ".":
            if path:
                yield path
        elif not rest:
            yield (*path, step)
        else:
            yield from from_fields(rest, (*path, step))


def shown(path: Path) -> str:
    """The path as a conflict names it: ``.spec.count`` or ``.items[name="a"].value``."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = json.loads(step[2:])
            text += "[" + ",".join(f"{key}={json.dumps(keys[key])}" for key in keys) + "]"
        else:
            text += f"[={step[2:]}]"
    return text


def _field(kind: FieldType, name: str) -> FieldType:
    if kind.shape == "map":
        return kind.of or _ANY
    return kind.fields.get(name, _ANY)
