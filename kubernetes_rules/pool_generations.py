"""Picks the slices of each pool's newest generation, of which some may not be published yet."""

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
    """The slices of each pool that have its highest generation among these, in their order.

    ``read`` returns the pool and the generation of a slice. Pools come in the order of their first slice.
    Go: addSlice in dynamic-resource-allocation/structured, ResourcePool of resource.k8s.io/v1.
    """
    # A driver that raises the generation rewrites the pool's slices one by one, so that slices of both
    # generations exist meanwhile.
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
    """The ResourceSlices of the newest generation, by driver and name of their pool; see ``newest_of``."""
    return newest_of(slices, _pool_and_generation)


def is_complete(slices: Sequence[Json]) -> bool:
    """Whether there are exactly ``resourceSliceCount`` ResourceSlices of one pool's generation.

    More are as incomplete as fewer. Nothing is allocated from an incomplete pool. ``slices`` is not empty.
    Go: GatherPools in dynamic-resource-allocation/structured.
    """
    return len(slices) == int(slices[0]["spec"]["pool"].get("resourceSliceCount") or 0)


def _pool_and_generation(stored: Json) -> tuple[tuple[str, str], int]:
    spec = stored["spec"]
    return (spec["driver"], spec["pool"]["name"]), int(spec["pool"].get("generation") or 0)
