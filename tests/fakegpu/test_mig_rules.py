"""Whatever is created and destroyed, a GPU is never over-committed, and what is refused cannot fit."""

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from fakegpu.machine.mig_state import new_compute_instance
from tests.gpus import (
    Code,
    MigCatalogue,
    MigState,
    Placement,
    gpu_instance_refusal,
    known_catalogues,
    load_catalogue,
    with_gpu_instance,
)

catalogues = st.sampled_from(known_catalogues()).map(load_catalogue)


@st.composite
def histories(draw: st.DrawFn) -> tuple[MigCatalogue, list[tuple[int, Placement] | int]]:
    """A GPU and what is tried on it: creations at listed places, and destructions of the n-th instance."""
    catalogue = draw(catalogues)
    places = [(profile_id, place) for profile_id, found in catalogue.placements.items() for place in found]
    step = st.sampled_from(places) | st.integers(0, 6)
    return catalogue, draw(st.lists(step, max_size=30))


def play(catalogue: MigCatalogue, steps: list[tuple[int, Placement] | int]) -> MigState:
    mig = MigState(enabled=True, pending=True)
    for step in steps:
        if isinstance(step, int):
            if step < len(mig.instances):
                mig = mig.with_instance(mig.instances[step].id, None)
        elif gpu_instance_refusal(catalogue, mig, *step) is None:
            mig, _ = with_gpu_instance(catalogue, mig, *step)
    return mig


def over_committed(catalogue: MigCatalogue, there: list[tuple[int, Placement]]) -> bool:
    """Counted slice by slice and engine by engine, apart from the code under test."""
    slices = [number for _, place in there for number in range(place.start, place.start + place.size)]
    whole = catalogue.whole
    wanted = [astuple(catalogue.profile(profile_id).engines) for profile_id, _ in there]
    engines = [sum(kind) for kind in zip(*wanted, strict=True)]
    return (
        len(slices) != len(set(slices))
        or any(number >= catalogue.memory_slices for number in slices)
        or sum(catalogue.profile(profile_id).slices for profile_id, _ in there) > whole.slices
        or any(count > most for count, most in zip(engines, astuple(whole.engines), strict=False))
        or any(
            sum(other == profile_id for other, _ in there) > catalogue.profile(profile_id).most_instances
            for profile_id, _ in there
        )
    )


@given(histories())
def test_no_history_over_commits_a_gpu(
    history: tuple[MigCatalogue, list[tuple[int, Placement] | int]],
) -> None:
    catalogue, steps = history
    mig = play(catalogue, steps)
    there = [(instance.profile_id, instance.placement) for instance in mig.instances]
    assert not over_committed(catalogue, there)
    assert len({instance.id for instance in mig.instances}) == len(there)


@given(histories(), st.data())
def test_what_is_refused_would_over_commit_the_gpu(
    history: tuple[MigCatalogue, list[tuple[int, Placement] | int]], data: st.DataObject
) -> None:
    catalogue, steps = history
    mig = play(catalogue, steps)
    there = [(instance.profile_id, instance.placement) for instance in mig.instances]
    profile_id = data.draw(st.sampled_from(sorted(catalogue.placements)))
    place = data.draw(st.sampled_from(catalogue.placements[profile_id]))
    refusal = gpu_instance_refusal(catalogue, mig, profile_id, place)
    expected = (
        Code.INSUFFICIENT_RESOURCES if over_committed(catalogue, [*there, (profile_id, place)]) else None
    )
    assert refusal == expected


@given(catalogues, st.data())
def test_compute_instances_never_overlap_nor_leave_their_gpu_instance(
    catalogue: MigCatalogue, data: st.DataObject
) -> None:
    profile = data.draw(st.sampled_from(catalogue.profiles))
    mig = MigState(enabled=True, pending=True)
    _, inside = with_gpu_instance(catalogue, mig, profile.id, catalogue.placements[profile.id][0])
    offered = [ci.id for ci in catalogue.compute_profiles(profile.id)]
    made = inside.compute_instances
    for profile_id in data.draw(st.lists(st.sampled_from(offered), max_size=10)):
        new = new_compute_instance(
            catalogue, type(inside)(inside.id, profile.id, inside.placement, made), profile_id
        )
        if not isinstance(new, Code):
            made = (*made, new)
    slices = [n for ci in made for n in range(ci.placement.start, ci.placement.start + ci.placement.size)]
    assert len(slices) == len(set(slices))
    assert all(number < profile.slices for number in slices)
    assert len({ci.id for ci in made}) == len(made)
