"""Picks the slices of pools that count: those of the newest generation, which may not all be there yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Json = Mapping[str, Any]
Published = TypeVar("Published")
Stored = TypeVar("Stored", bound=Json)
Pool = TypeVar("Pool", bound=Hashable)


def newest_of(
    slices: Iterable[Published], read: Callable[[Published], tuple[Pool, int]]
) -> dict[Pool, list[Published]]:
    """The slices of each pool that are of its newest generation among these, in their order.

    ``read`` returns the pool and the generation of a slice. Pools come in the order of their first slice.
    Go: addSlice in dynamic-resource-allocation/structured, ResourcePool of resource.k8s.io/v1.
    """
    newest: dict[Pool, list[Published]] = {}
    generations: dict[Pool, int] = {}
    for one in slices:
        pool, generation = read(one)
        known = generations.get(pool)
        if known is None or generation > known:
            newest[pool], generations[pool] = [one], generation
        elif generation == known:
            newest[pool].append(one)
    return newest


def newest_slices(slices: Iterable[Stored]) -> dict[tuple[str, str], list[Stored]]:
    """The ResourceSlices that count, by driver and name of their pool; see ``newest_of``."""
    return newest_of(slices, _pool_and_generation)


def is_complete(slices: Sequence[Json]) -> bool:
    """Whether the ResourceSlices of one pool's generation are all there: as many as each says, not more.

    There is at least one. Nothing is allocated from a pool that is not complete. Go: GatherPools in
    dynamic-resource-allocation/structured.
    """
    return len(slices) == int(slices[0]["spec"]["pool"].get("resourceSliceCount") or 0)


def _pool_and_generation(stored: Json) -> tuple[tuple[str, str], int]:
    spec = stored["spec"]
    return (spec["driver"], spec["pool"]["name"]), int(spec["pool"].get("generation") or 0)
