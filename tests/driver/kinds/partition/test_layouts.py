"""Layouts become partitions that the hardware takes: every one that it allows, and mig-parted's by name."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest

from driver.kinds.partition.layouts import Placed, find_profile, layout_profiles, packing_order, place
from tests.driver.mig_machines import UNLIKE, device, look, mig_of, with_mode_on
from tests.gpus import (
    ConfigError,
    FakeMachine,
    GpuInstanceProfile,
    GpuMig,
    MigCatalogue,
    MigState,
    gpu_instance_refusal,
    load_machine,
    with_gpu_instance,
)


@cache
def mig(machine: str) -> GpuMig:
    return mig_of(look(FakeMachine.open(machine)).gpus[0])


def names(profiles: Sequence[GpuInstanceProfile]) -> list[str]:
    return [profile.name for profile in profiles]


def places(placed: Sequence[Placed] | None) -> list[tuple[str, int]]:
    assert placed is not None
    return [(profile.name, placement.start) for profile, placement in placed]


def reachable(catalogue: MigCatalogue, state: MigState, start: int = 0) -> Iterator[tuple[int, ...]]:
    """The profile ids of every set of instances that the hardware allows, made from low slices to high."""
    yield tuple(sorted(instance.profile_id for instance in state.instances))
    for profile in catalogue.profiles:
        for placement in catalogue.placements[profile.id]:
            if placement.start < start:
                continue
            if gpu_instance_refusal(catalogue, state, profile.id, placement) is None:
                after, _ = with_gpu_instance(catalogue, state, profile.id, placement)
                yield from reachable(catalogue, after, placement.start + placement.size)


@pytest.mark.parametrize("machine", UNLIKE)
def test_every_layout_that_the_hardware_allows_is_placed_and_can_be_made(machine: str) -> None:
    catalogue = load_machine(machine).product.mig
    assert catalogue is not None
    layouts = set(reachable(catalogue, MigState(enabled=True, pending=True)))
    for ids in layouts:
        placed = place([catalogue.profile(one) for one in ids], mig(machine))

        assert placed is not None, ids
        assert sorted(profile.id for profile, _ in placed) == list(ids)
        state = MigState(enabled=True, pending=True)
        for profile, placement in placed:
            assert gpu_instance_refusal(catalogue, state, profile.id, placement) is None
            state, _ = with_gpu_instance(catalogue, state, profile.id, placement)
    assert len(layouts) > 10


@pytest.mark.parametrize("machine", UNLIKE)
def test_layouts_of_mig_parted_can_be_made_on_every_machine_by_nvml(machine: str) -> None:
    fake = with_mode_on(machine)
    profiles = [placed.profile.name for placed in mig(machine).profiles]
    for layout in ("all-balanced", *(f"all-{name.replace('+', '.')}" for name in profiles)):
        placed = place(layout_profiles(layout, mig(machine)), mig(machine))

        assert placed, layout
        gpu = device(fake)
        made = [gpu.create_gpu_instance(profile.id, placement) for profile, placement in placed]
        if layout != "all-balanced":
            assert len(made) == placed[0][0].most_instances, layout
        for instance in made:
            gpu.destroy_gpu_instance(instance.id)


@pytest.mark.parametrize(
    ("machine", "balanced"),
    [
        ("hgx-h100", [("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3), ("3g.40gb", 4)]),
        ("dgx-a100", [("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3), ("3g.20gb", 4)]),
        ("a30-quad", [("2g.12gb", 0), ("1g.6gb", 2), ("1g.6gb", 3)]),
        ("rtx-pro-6000-octo", [("2g.48gb", 0), ("1g.24gb", 6), ("1g.24gb", 9)]),
    ],
)
def test_all_balanced_is_what_mig_parted_makes_of_it(machine: str, balanced: list[tuple[str, int]]) -> None:
    assert places(place(layout_profiles("all-balanced", mig(machine)), mig(machine))) == balanced


def test_all_of_a_profile_is_as_many_as_fit() -> None:
    assert names(layout_profiles("all-1g.10gb", mig("hgx-h100"))) == ["1g.10gb"] * 7
    assert names(layout_profiles("all-1g", mig("hgx-b200"))) == ["1g.23gb"] * 7
    assert names(layout_profiles("all-1g.10gb.me", mig("hgx-h100"))) == ["1g.10gb+me"]
    assert names(layout_profiles("all-1g.20gb", mig("hgx-h100"))) == ["1g.20gb"] * 4


def test_a_layout_names_what_the_gpu_lacks() -> None:
    with pytest.raises(ConfigError, match=r"no profile 1g\.5gb, 9g: its profiles are 1g\.10gb, 2g\.20gb"):
        layout_profiles(["1g.5gb", "3g", "9g", "1g.5gb"], mig("hgx-h100"))
    with pytest.raises(ConfigError, match=r"no profile 3g: its profiles are 1g\.6gb"):
        layout_profiles("all-3g", mig("a30-quad"))
    with pytest.raises(ConfigError, match="there is no layout 'balanced'"):
        layout_profiles("balanced", mig("a30-quad"))
    five_slices = replace(mig("a30-quad"), profiles=mig("a30-quad").profiles[:2])
    with pytest.raises(ConfigError, match="all-balanced is not defined"):
        layout_profiles("all-balanced", five_slices)


@pytest.mark.parametrize(
    ("machine", "name", "found"),
    [
        ("hgx-h100", "1g", "1g.10gb"),
        ("hgx-h100", "1g+me", "1g.10gb+me"),
        ("hgx-h100", "1g+gfx", None),
        ("a30-quad", "3g", None),
        ("rtx-pro-6000-octo", "1g-me", "1g.24gb-me"),
        ("rtx-pro-6000-octo", "1g+me.all", "1g.24gb+me.all"),
        ("rtx-pro-6000-octo", "4g", "4g.96gb"),
    ],
)
def test_a_short_name_is_the_profile_with_the_least_memory(
    machine: str, name: str, found: str | None
) -> None:
    profile = find_profile(name, mig(machine))

    assert (profile and profile.name) == found


def test_what_does_not_fit_is_not_placed() -> None:
    h100 = mig("hgx-h100")
    for layout in (
        ["4g", "4g"],
        ["3g", "3g", "1g"],
        ["1g"] * 8,
        ["2g"] * 4,
        ["1g+me", "1g+me"],
        ["7g", "1g"],
        ["1g.20gb"] * 5,
    ):
        assert place(layout_profiles(layout, h100), h100) is None, layout
    rtx = mig("rtx-pro-6000-octo")
    assert place(layout_profiles(["1g+me.all", "1g"], rtx), rtx) is None
    assert place(layout_profiles(["1g+me.all", "1g-me", "2g-me"], rtx), rtx) is not None
    assert place(layout_profiles(["1g"], rtx), h100) is None


def test_no_more_of_a_profile_are_placed_than_nvml_allows() -> None:
    h100 = mig("hgx-h100")
    few = tuple(
        replace(placed, profile=replace(placed.profile, most_instances=2)) for placed in h100.profiles
    )
    limited = replace(h100, profiles=few)

    assert place(layout_profiles(["1g", "1g"], limited), limited) is not None
    assert place(layout_profiles(["1g", "1g", "1g"], limited), limited) is None


def test_partitions_are_packed_from_the_edge_that_takes_least_from_bigger_ones() -> None:
    every = [
        (placed.profile, placement)
        for placed in mig("hgx-h100").profiles
        for placement in placed.placements
        if placed.profile.index in range(4)
    ]

    assert places(packing_order(every)) == [
        *(("1g.10gb", start) for start in (6, 5, 4, 3, 2, 1, 0)),
        *(("2g.20gb", start) for start in (4, 2, 0)),
        *(("3g.40gb", start) for start in (4, 0)),
        ("4g.40gb", 0),
    ]
    assert packing_order(list(reversed(every))) == packing_order(every)
