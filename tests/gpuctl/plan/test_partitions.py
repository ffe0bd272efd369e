"""``gpuctl plan --partitions`` says which layouts fit a GPU and draws where each partition lies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import ConfigError
from driver.hardware.gpu import GpuMig
from driver.nvml.mig import Placement
from fakegpu.machine.spec import known_machines
from gpuctl.plan.partition_bars import bar, ruler
from gpuctl.plan.partitions import fit, named_layouts, read_layout
from gpuctl.plan.planned import plan_node
from tests.fakegpu.guests import VGPU_GUESTS
from tests.gpuctl.plan.printed import printed

WITHOUT_MIG = {"dgx1-v100", "dgx2", "l4-quad", "l40s-octo", "passthrough-quad", "t4", "vgpu-host-l40s"}


def mig_of(machine: str) -> GpuMig:
    mig = plan_node(machine, "node", None).inventory.gpus[0].mig
    assert mig is not None
    return mig


H100 = mig_of("hgx-h100")


@pytest.mark.parametrize(
    ("layout", "problem", "nearest"),
    [
        ("4g,4g", "it wants 2 x 4g.40gb, the GPU can have 1", ["4g.40gb"]),
        ("1g+me,1g+me,2g", "it wants 2 x 1g.10gb+me, the GPU can have 1", ["2g.20gb", "1g.10gb+me"]),
        ("2g,2g,2g,1g,1g", "it wants 8 compute slices, the GPU has 7", ["2g.20gb"] * 3 + ["1g.10gb"]),
        ("all-1g.5gb", "the GPU has no profile 1g.5gb", []),
    ],
)
def test_a_layout_that_does_not_fit_says_why_and_what_does(
    layout: str, problem: str, nearest: list[str]
) -> None:
    found = fit(read_layout(layout), H100)

    assert problem in str(found.problem)
    assert sorted(one.profile for one in found.nearest) == sorted(nearest)


def test_places_that_overlap_are_named_where_all_else_would_do() -> None:
    profiles = tuple(
        replace(one, placements=one.placements[:1]) if one.profile.name == "2g.20gb" else one
        for one in H100.profiles
    )

    found = fit(("4g", "2g"), replace(H100, profiles=profiles))

    assert found.problem == (
        "its partitions do not fit beside each other: 4g.40gb starts at 0; 2g.20gb starts at 0"
    )
    assert [one.profile for one in found.nearest] == ["4g.40gb"]


def test_the_named_layouts_of_a_model_are_those_of_mig_parted() -> None:
    names = [f"all-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb.me")]
    assert [*named_layouts(H100)] == [*names, "all-1g.20gb", "all-balanced"]
    assert len(named_layouts(H100)["all-1g.10gb"]) == 7


@pytest.mark.parametrize("machine", known_machines())
def test_every_machine_can_be_drawn_in_80_columns(machine: str) -> None:
    text = printed("plan", "--partitions", "--machine", machine)

    assert "exit code" not in text
    assert all(len(line) <= 80 for line in text.splitlines() if "index" not in line)
    assert ("the GPU has no MIG" in text) == (machine in {*WITHOUT_MIG, *VGPU_GUESTS})


@pytest.mark.parametrize("text", ["", ",", "1g,", "x" * 3 + "," * 20])
def test_a_layout_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a layout"):
        read_layout(text)


def test_a_long_name_in_a_narrow_box_loses_its_memory_first() -> None:
    boxes = bar([("1g.10gb+me", Placement(1, 1))], 8).splitlines()[1]

    assert boxes == f"  │········│ 1g+me  │{'·' * 53}│"
    assert ruler(4).split() == ["0", "1", "2", "3"]


@given(st.lists(st.sampled_from(["1g", "1g+me", "1g.20gb", "2g", "3g", "4g", "7g"]), min_size=1, max_size=8))
def test_what_is_drawn_never_overlaps_and_what_is_nearest_is_a_part_of_what_was_asked(
    names: list[str],
) -> None:
    found = fit(tuple(names), H100)

    for parts in (found.partitions, found.nearest):
        covered = [at for one in parts for at in range(one.start, one.start + one.size)]
        assert len(covered) == len(set(covered))
        assert set(covered) <= set(range(8))
    assert found.fits == (found.problem is None) == (len(found.partitions) == len(names))
    if not found.fits:
        assert 0 < len(found.nearest) < len(names)
