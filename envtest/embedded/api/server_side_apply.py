"""Server-side apply: merges what a manager applies, finds conflicts, and tracks who owns which field.

Ownership is kept from the first apply on: until then an object has no managedFields, and what is there
belongs to ``before-first-apply``, as in Kubernetes for objects from before server-side apply.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from envtest.embedded.api.statuses import Refused, conflict_causes, plain_go_error
from envtest.embedded.schema.types import FieldType

Object = dict[str, Any]

# The server alone sets these, or they say which object it is.
_UNOWNED = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
    | {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}
)
# The manager to which Kubernetes gives fields that were there before the first apply.
_FIRST = "before-first-apply"

Path = tuple[str, ...]
"""Steps into an object: ``f:name`` a field, ``k:{...}`` the list entry with these keys, ``v:...`` a value."""

_KEY_DEFAULTS = {"protocol": "TCP"}
"""The defaults of keys that an entry of a list may lack: of built-in kinds the protocol of ports has one."""

_WITH_FIELDS = ("struct", "map")


@dataclass(frozen=True, slots=True)
class Manager:
    """A writer: its name, how it writes (Apply or Update), and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of managedFields."""

    manager: Manager
    api_version: str
    time: str
    paths: frozenset[Path]


def applied(
    stored: Object | None,
    config: Object,
    kind: FieldType,
    manager: Manager,
    now: str,
    *,
    force: bool,
    has_status: bool = True,
) -> Object:
    """The object after ``config`` is applied; raises Refused (409) with the fields that others own.

    With ``has_status`` the status is written through its subresource only. Fields that the manager applied
    before and now leaves out are removed, unless another manager owns them.
    """
    live: Object = copy.deepcopy(stored) if stored is not None else {}
    wanted = _owned_part(config, manager.subresource, has_status=has_status)
    paths = frozenset(_paths_of(wanted, kind))
    entries = _entries(live, kind, now)
    merged = _merged(live, wanted, kind)
    assert isinstance(merged, dict)
    others = [entry for entry in entries if entry.manager != manager]
    # Two managers may own a field with one value; to change what another one owns is a conflict.
    changed = {path for path in paths if _is_changed(live, merged, kind, path)}
    others.sort(key=lambda entry: entry.manager.name)
    conflicts = [
        (entry, sorted(changed & entry.paths, key=_rank)) for entry in others if changed & entry.paths
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    # A forced apply takes the fields over.
    others = [_reduced(entry, changed) for entry in others]
    before = next((entry.paths for entry in entries if entry.manager == manager), frozenset())
    kept = paths.union(*(entry.paths for entry in others))
    merged = without(merged, kind, _dropped(_with_parents(before, kind), kept))
    # What went with an entry of a list has no owner any more.
    gone = {
        path
        for path in frozenset[Path]().union(*(entry.paths for entry in others))
        if _value_at(merged, kind, path) is None and _value_at(live, kind, path) is not None
    }
    others = [_reduced(entry, gone) for entry in others]
    # The time is that of the last apply that changed something; before the first one there is none.
    last = next((entry.time for entry in entries if entry.manager == manager), "")
    time = now if stored is None or _without_owners(merged) != _without_owners(live) else last
    own = Entry(manager, config.get("apiVersion", ""), time, paths)
    merged.setdefault("metadata", {})["managedFields"] = _written([*others, own])
    return {**merged, **{key: config[key] for key in ("apiVersion", "kind") if key in config}}


def _with_parents(paths: Iterable[Path], kind: FieldType) -> frozenset[Path]:
    """The paths, and the declared fields above them: these go with what is in them unless somebody owns it.

    Go: EnsureNamedFieldsAreMembers in structured-merge-diff/fieldpath.
    """
    found = set(paths)
    for path in paths:
        above = kind
        for length, step in enumerate(path[:-1], 1):
            name = step[2:] if step.startswith("f:") else ""
            if name in above.fields and path[:length] != ("f:metadata",):
                found.add(path[:length])
            above = above.field_type(name) if name else above.item
    return frozenset(found)


def _dropped(before: frozenset[Path], kept: frozenset[Path]) -> set[Path]:
    """The paths that nobody owns any more. A list entry goes even if another manager owns a field of it."""
    prefixes = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    return {path for path in before if path not in (prefixes if path[-1].startswith("f:") else kept)}


def after_update(stored: Object, item: Object, kind: FieldType, manager: Manager, now: str) -> Object:
    """``item`` with its owners after a write other than an apply: the writer owns the fields that it changed.

    An object without managedFields, which nobody has applied, gets none.
    """
    if item["metadata"].get("managedFields") == [{}]:
        # One empty entry takes the owners away.
        metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
        return {**item, "metadata": metadata}
    if "managedFields" not in stored["metadata"]:
        return item
    old, new = _owned_part(stored, ""), _owned_part(item, "")
    old |= {"status": stored["status"]} if "status" in stored else {}
    new |= {"status": item["status"]} if "status" in item else {}
    before, after = set(_paths_of(old, kind)), set(_paths_of(new, kind))
    changed = {path for path in before & after if _is_changed(old, new, kind, path)}
    # What was added or removed has changed, too.
    changed |= (before ^ after) | _parents_without(new, kind, before - after)
    entries = [_reduced(entry, changed) for entry in _entries(item, kind, now)]
    own = next((entry for entry in entries if entry.manager == manager), None)
    entries = [entry for entry in entries if entry.manager != manager]
    mine = (changed & after) | _parents_without(old, kind, after - before) | (own.paths if own else set())
    if mine:
        # An entry has the time of the last change of its fields.
        time = now if changed & after else own.time if own else now
        entries.append(Entry(manager, item.get("apiVersion", ""), time, frozenset(mine)))
    return {**item, "metadata": {**item["metadata"], "managedFields": _written(entries)}}


def _parents_without(item: Object, kind: FieldType, paths: set[Path]) -> set[Path]:
    """What holds the ``paths`` and is not in the item: who adds the first entry owns the map or list, too."""
    found = set()
    for path in paths:
        for length in range(1, len(path)):
            parent = path[:length]
            if _kind_at(kind, parent).unset != "!" and _value_at(item, kind, parent) is None:
                found.add(parent)
    return found


def _rank(path: Path) -> list[tuple[bool, str]]:
    """Sorts paths as structured-merge-diff does: what a level has itself, then what is below it."""
    return [(at < len(path) - 1, step) for at, step in enumerate(path)]


def _kind_at(kind: FieldType, path: Path) -> FieldType:
    for step in path:
        kind = kind.field_type(step[2:]) if step.startswith("f:") else kind.item
    return kind


def _is_changed(old: Object, new: Object, kind: FieldType, path: Path) -> bool:
    """Whether what is at ``path`` differs; the fields of an entry of a list have paths of their own."""
    before, after = (_value_at(item, kind, path) for item in (old, new))
    if path[-1].startswith("k:"):
        return (before is None) is not (after is None)
    return bool(before != after)


def _without_owners(item: Object) -> Object:
    metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": metadata}


def without_times(item: Object) -> Object:
    """The object without the times of its managedFields: an apply that changes only these is not written."""
    metadata = item["metadata"]
    entries = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in metadata.get("managedFields") or []
    ]
    return {**item, "metadata": {**metadata, "managedFields": entries}}


def _owned_part(item: Object, subresource: str, *, has_status: bool = True) -> Object:
    """The part whose fields have owners: no identity, and the status only through its subresource if any."""
    if subresource:
        return {key: item[key] for key in (subresource,) if key in item}
    unowned = ("apiVersion", "kind", *(("status",) if has_status else ()))
    part = {key: value for key, value in item.items() if key not in unowned}
    metadata = {
        key: value for key, value in (part.pop("metadata", None) or {}).items() if key not in _UNOWNED
    }
    return {**part, **({"metadata": metadata} if metadata else {})}


def _entries(live: Object, kind: FieldType, now: str) -> list[Entry]:
    managed = live.get("metadata", {}).get("managedFields")
    if managed is None:
        first = _owned_part(live, "")
        first |= {"status": live["status"]} if "status" in live else {}
        found = set(_paths_of(first, kind))
        paths = frozenset(found | _parents_without({}, kind, found))
        return [Entry(Manager(_FIRST, "Update"), live.get("apiVersion", ""), now, paths)] if paths else []
    return [
        Entry(
            Manager(item.get("manager", ""), item.get("operation", ""), item.get("subresource", "")),
            item.get("apiVersion", ""),
            item.get("time", ""),
            frozenset(_from_fields(item.get("fieldsV1"))),
        )
        for item in managed
    ]


def _reduced(entry: Entry, gone: set[Path]) -> Entry:
    if not entry.paths & gone:
        return entry
    return Entry(entry.manager, entry.api_version, entry.time, entry.paths - gone)


def _written(entries: list[Entry]) -> list[Object]:
    """managedFields: the entries of applies first, each kind by time and name."""
    kept = [entry for entry in entries if entry.paths]
    kept.sort(key=lambda entry: (entry.manager.operation, entry.time, entry.manager.name, entry.api_version))
    return [
        {
            "manager": entry.manager.name,
            "operation": entry.manager.operation,
            "apiVersion": entry.api_version,
            **({"time": entry.time} if entry.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": _to_fields(entry.paths),
            **({"subresource": entry.manager.subresource} if entry.manager.subresource else {}),
        }
        for entry in kept
    ]


def _merged(live: Any, wanted: Any, kind: FieldType) -> Any:
    if isinstance(wanted, dict) and kind.shape in _WITH_FIELDS and not kind.atomic:
        result = dict(live) if isinstance(live, dict) else {}
        for name, value in wanted.items():
            result[name] = _merged(result.get(name), value, kind.field_type(name))
        return result
    # Without list keys a list is atomic: it is replaced as a whole.
    if not isinstance(wanted, list) or kind.keys is None:
        return copy.deepcopy(wanted)
    own = {entry_step(item, kind): item for item in wanted}
    if len(own) < len(wanted):
        raise plain_go_error("failed to create typed patch object: a list has duplicate entries for a key")
    there = {entry_step(item, kind): item for item in live or []}
    return [
        _merged(there.get(step), own[step], kind.item) if step in own else there[step]
        for step in _order(list(there), list(own))
    ]


def _order(there: list[str], wanted: list[str]) -> list[str]:
    """The order of a merged list (structured-merge-diff, mergingWalker.visitListItems).

    Wanted entries have their own order, others stay before the ones that they precede.
    """
    result: list[str] = []
    own, rest = set(wanted), list(there)
    for step in wanted:
        # Up to the entry itself, or for a new one up to the next that is wanted.
        end = (
            rest.index(step)
            if step in rest
            else next((at for at, one in enumerate(rest) if one in own), None)
        )
        passed = rest[:end]
        result += [one for one in passed if one not in own]
        rest = [one for one in passed if one in own] + rest[len(passed) :]
        if step in rest:
            rest.remove(step)
        result.append(step)
    return result + [one for one in rest if one not in own]


def _conflict(conflicts: list[tuple[Entry, list[Path]]]) -> Refused:
    """The 409 that names the owner of each field, and the field."""
    found = [
        (f'conflict with "{one.manager.name}"', shown(path)) for one, paths in conflicts for path in paths
    ]
    listed = ", ".join(f"{text}: {field}" for text, field in found)
    details = {"causes": conflict_causes(found)}
    return Refused(409, f"Apply failed with {len(found)} conflicts: {listed}", details=details)


def _paths_of(value: Any, kind: FieldType, path: Path = ()) -> Iterator[Path]:
    """The paths that the writer of ``value`` owns: leaves, and the entries of keyed lists."""
    if kind.shape in _WITH_FIELDS and isinstance(value, dict) and not kind.atomic and value:
        for name, item in value.items():
            yield from _paths_of(item, kind.field_type(name), (*path, f"f:{name}"))
    elif kind.shape == "list" and isinstance(value, list) and kind.keys is not None and value:
        for item in value:
            here = (*path, entry_step(item, kind))
            yield here
            if kind.keys:
                yield from _paths_of(item, kind.item, here)
    elif path:
        yield path


def entry_step(item: Any, kind: FieldType) -> str:
    """The step to an entry of a list, which its keys identify or, without any, its value."""
    if not kind.keys:
        return "v:" + json.dumps(item, separators=(",", ":"))
    with_defaults = {**{key: _KEY_DEFAULTS[key] for key in kind.keys if key in _KEY_DEFAULTS}, **item}
    keys = {key: with_defaults[key] for key in sorted(kind.keys) if key in with_defaults}
    return "k:" + json.dumps(keys, separators=(",", ":"))


def _value_at(value: Any, kind: FieldType, path: Path) -> Any:
    """What is at ``path``, None where nothing is."""
    for step in path:
        if step.startswith("f:"):
            name = step[2:]
            value = value.get(name) if isinstance(value, dict) else None
            kind = kind.field_type(name)
        else:
            value = next((item for item in value or [] if entry_step(item, kind) == step), None)
            kind = kind.item
        if value is None:
            return None
    return value


def without(value: Any, kind: FieldType, paths: Iterable[Path]) -> Any:
    """A copy of ``value`` without the ``paths``, and without maps and lists that become empty by that."""
    result = copy.deepcopy(value)
    for path in sorted(paths, key=len):
        # Short paths first: a list entry is removed before the fields that identify it.
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
        _remove(child, kind.field_type(name), rest)
        if child in ({}, []):
            del value[name]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if entry_step(item, kind) == step:
                if rest:
                    _remove(item, kind.item, rest)
                else:
                    del value[index]
                return


def _to_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """The paths as FieldsV1 writes them; an entry that is owned itself has a ``.``."""
    tree: dict[str, Any] = {}
    nodes = []
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        nodes.append(node)
    for node in nodes:
        if node:
            node["."] = {}
    return tree


def _from_fields(tree: Any, path: Path = ()) -> Iterator[Path]:
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
            yield from _from_fields(rest, (*path, step))


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
