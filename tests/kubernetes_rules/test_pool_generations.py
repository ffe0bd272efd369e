"""Of each pool the newest generation counts, and it has to have as many slices as it says."""

from kubernetes_rules.pool_generations import is_complete, newest_slices
from tests.clusters import Object


def published(
    name: str, generation: int | None, *, pool: str = "p", driver: str = "d", count: int = 1
) -> Object:
    told: Object = {"name": pool, "resourceSliceCount": count}
    if generation is not None:
        told["generation"] = generation
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": told}}


def names(slices: list[Object]) -> dict[tuple[str, str], list[str]]:
    found = newest_slices(slices)
    return {pool: [str(one["metadata"]["name"]) for one in those] for pool, those in found.items()}


def test_no_generation_is_the_generation_0() -> None:
    assert names([published("a", None), published("b", 0)]) == {("d", "p"): ["a", "b"]}
    assert names([]) == {}


def test_a_pool_is_complete_with_as_many_slices_as_it_says_and_not_with_more() -> None:
    two = [published(name, 1, count=2) for name in ("a", "b")]
    assert is_complete(two)
    assert not is_complete(two[:1])
    assert not is_complete([*two, published("c", 1, count=2)])
