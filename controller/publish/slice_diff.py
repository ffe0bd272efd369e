"""Works out which ResourceSlices to delete, update and create so that a pool is as it should be. Pure.

The rules are those of the Go helper (k8s.io/dynamic-resource-allocation/resourceslice): consumers look only
at the highest generation of a pool, and use it only if it has as many slices as resourceSliceCount says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.slices.specs import TaintTimes, same_spec, with_times

Object = dict[str, Any]
Spec = dict[str, Any]

_INDEX = re.compile(r"^([0-9a-f]{5,})-", re.ASCII)
_INDEX_DIGITS = 5
_LAST_GENERATION = 2**63 - 1
"""The highest generation that the API can store."""


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
        """Whether there is nothing to write."""
        return not (self.deletes or self.updates or self.creates)


def plan_sync(
    specs: Sequence[Spec],
    stored: Iterable[Object],
    times: TaintTimes,
) -> SyncPlan:
    """The writes that make a pool out of ``specs``, which have no ``pool.generation`` yet.

    ``stored`` are all slices of the driver for the node. Slices of another pool or of an older generation are
    deleted, and those whose name has no index, an index that is taken, or one that is too high. ``times`` are
    timeAdded of the taints.
    """
    pool = specs[0]["pool"]["name"]
    generation, matched, obsolete = _match(pool, len(specs), stored)
    changed = {
        index
        for index, item in matched.items()
        if not same_spec(specs[index], item["spec"]) or _generation(item) != generation
    }
    missing = [index for index in range(len(specs)) if index not in matched]
    # With a single update the pool is complete before and after it, so the generation can stay. Otherwise it
    # rises, and every slice is written: a scheduler must never see a mix of old and new slices as complete.
    if missing or len(changed) > 1:
        # Somebody else wrote this generation. All slices are deleted and the pool begins again.
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
    """The pool's highest generation, its slices by index, and those to delete."""
    # Sorted, so that of two slices with one index always the same one stays.
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
    """The index at the beginning of a slice's name, None if there is none."""
    match = _INDEX.match(name)
    return None if match is None else int(match[1], 16)


_MOST_PREFIX_CHARACTERS = 58
"""``maxGeneratedNameLength`` of the API server (k8s.io/apiserver, storage/names)."""


def generate_name(index: int, driver: str, node: str) -> str:
    """The ``generateName`` of the ``index``-th slice."""
    # The index first: schedulers sort the slices of a pool by name, so it decides the order. The server
    # appends five characters. It would cut a prefix that is too long for that, but refuses one that is too
    # long for a name at all.
    return f"{index:0{_INDEX_DIGITS}x}-{driver}-{node}"[: _MOST_PREFIX_CHARACTERS - 1].rstrip(".-") + "-"
