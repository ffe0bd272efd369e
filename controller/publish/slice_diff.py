"""Works out which ResourceSlices to delete, update and create so that a pool is as it should be: pure.

The rules are those of the Go helper (k8s.io/dynamic-resource-allocation/resourceslice): consumers look only
at the highest generation of a pool, and use it only when it has as many slices as it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.slices.specs import TaintTimes, with_times

Object = dict[str, Any]
Spec = dict[str, Any]

_INDEX = re.compile(r"^([0-9a-f]{5,})-", re.ASCII)
_INDEX_DIGITS = 5
_LAST_GENERATION = 2**63 - 1
"""The greatest that the API stores: no generation comes after it."""


@dataclass(frozen=True, slots=True)
class Update:
    """The ``index``-th slice of the pool is stored as ``stored`` and should have ``spec``."""

    index: int
    stored: Object
    spec: Spec


@dataclass(frozen=True, slots=True)
class Create:
    """The ``index``-th slice of the pool is missing and should have ``spec``."""

    index: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What to write, in this order: deletes, updates, creates."""

    deletes: tuple[Object, ...]
    updates: tuple[Update, ...]
    creates: tuple[Create, ...]

    @property
    def empty(self) -> bool:
        """Whether everything is as it should be."""
        return not (self.deletes or self.updates or self.creates)


def plan_sync(
    specs: Sequence[Spec],
    stored: Iterable[Object],
    same: Callable[[int, Mapping[str, Any], Mapping[str, Any]], bool],
    times: TaintTimes,
) -> SyncPlan:
    """The writes that make a pool out of ``specs``, which have no ``pool.generation`` yet.

    ``stored`` are all slices of the driver for the node. Those of another pool or an older generation,
    those whose name tells no index or one that is taken or too high, are deleted. ``same`` says whether
    a stored spec will do for the wanted spec of an index. ``times`` are those of the taints.

    The generation stays when nothing has to be created and at most one slice updated, since then the
    pool is whole before and after the write. Otherwise it rises and every slice is written. A generation
    that cannot rise any more was not written by this driver, and the pool begins again.
    """
    pool = specs[0]["pool"]["name"]
    generation, matched, obsolete = _match(pool, len(specs), stored)
    changed = {
        index
        for index, item in matched.items()
        if not same(index, specs[index], item["spec"]) or _generation(item) != generation
    }
    missing = [index for index in range(len(specs)) if index not in matched]
    if missing or len(changed) > 1:
        if generation >= _LAST_GENERATION:
            obsolete, matched, missing = [*obsolete, *matched.values()], {}, list(range(len(specs)))
            generation = 0
        generation += 1
        changed = set(matched)
    return SyncPlan(
        tuple(obsolete),
        tuple(
            Update(
                index,
                matched[index],
                _with_generation(with_times(specs[index], times), generation),
            )
            for index in sorted(changed)
        ),
        tuple(
            Create(index, _with_generation(with_times(specs[index], times), generation)) for index in missing
        ),
    )


def _match(pool: str, count: int, stored: Iterable[Object]) -> tuple[int, dict[int, Object], list[Object]]:
    """The pool's highest generation, its slices by index, and those that are to go."""
    everything = sorted(stored, key=lambda item: str(item["metadata"]["name"]))
    ours = [item for item in everything if item["spec"].get("pool", {}).get("name") == pool]
    generation = max(map(_generation, ours), default=0)
    matched: dict[int, Object] = {}
    obsolete = [item for item in everything if item["spec"].get("pool", {}).get("name") != pool]
    for item in ours:
        index = index_of(str(item["metadata"]["name"]))
        usable = index is not None and index < count and index not in matched
        if usable and index is not None and _generation(item) == generation:
            matched[index] = item
        else:
            obsolete.append(item)
    return generation, matched, obsolete


def _generation(item: Object) -> int:
    return int(item["spec"].get("pool", {}).get("generation") or 0)


def _with_generation(spec: Mapping[str, Any], generation: int) -> Spec:
    return {**spec, "pool": {**spec["pool"], "generation": generation}}


def index_of(name: str) -> int | None:
    """The index that a slice's name begins with, None where it begins with none."""
    match = _INDEX.match(name)
    return None if match is None else int(match[1], 16)


_MOST_PREFIX_CHARACTERS = 58
"""``maxGeneratedNameLength`` of the API server (k8s.io/apiserver, storage/names)."""


def generate_name(index: int, driver: str, node: str) -> str:
    """What the ``index``-th slice's name begins with, as much as the server keeps before its five letters.

    It would cut a longer one itself, but refuses one that is too long for a name.
    """
    return f"{index:0{_INDEX_DIGITS}x}-{driver}-{node}"[: _MOST_PREFIX_CHARACTERS - 1].rstrip(".-") + "-"
