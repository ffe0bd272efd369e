"""``gpuctl mig plan`` says which layouts fit a GPU and draws where each partition lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from driver.errors import ConfigError
from driver.hardware.gpu import GpuMig
from driver.nvml.mig import Placement
from fakegpu.machine.spec import known_machines
from gpuctl.__main__ import commands
from gpuctl.plan.partition_bars import bar, ruler
from gpuctl.plan.partitions import fit, named_layouts, read_layout
from gpuctl.plan.planned import plan_node
from tests.fakegpu.guests import VGPU_GUESTS


def run(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["mig", "plan", *arguments], catch_exceptions=False)


def told(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*arguments, "-o", "json").output)["gpuKinds"]
    return found


def mig_of(machine: str) -> GpuMig:
    mig = plan_node(machine, "node", None).inventory.gpus[0].mig
    assert mig is not None
    return mig


H100 = mig_of("hgx-h100")


def test_a_layout_is_drawn_over_the_memory_slices_in_80_columns() -> None:
    result = run("--machine", "hgx-h100", "--layout", "1g,1g,2g,3g")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "NVIDIA H100 80GB HBM3: index 0-7 (0000:1b:00.0 ... 0000:df:00.0)"
    assert lines[1] == "1g,1g,2g,3g fits: 2g.20gb, 2 x 1g.10gb, 3g.40gb; 78.6 GiB, 124 SMs together"
    assert lines[2].split() == list("01234567")
    assert lines[4] == ("  │     2g.20gb     │1g.10gb │1g.10gb │              3g.40gb              │")
    assert max(map(len, lines)) <= 80
    starts = {lines[2].index(str(number)) for number in (0, 2, 3, 4)}
    assert all(lines[3][start - 1] in "┌┬" for start in starts)


def test_scripts_get_the_places() -> None:
    (kind,) = told("--machine", "hgx-h100", "--layout", "all-balanced")

    assert (kind["product"], kind["memorySlices"], len(kind["gpus"])) == ("NVIDIA H100 80GB HBM3", 8, 8)
    assert kind["layout"]["fits"] is True
    assert [(one["profile"], one["start"], one["size"]) for one in kind["layout"]["partitions"]] == [
        ("2g.20gb", 0, 2),
        ("1g.10gb", 2, 1),
        ("1g.10gb", 3, 1),
        ("3g.40gb", 4, 4),
    ]
    assert kind["profiles"][0]["id"] == 19
    assert kind["profiles"][0]["starts"] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("layout", "problem", "nearest"),
    [
        ("1g,1g,3g,4g", "it wants 10 memory slices, the GPU has 8", ["4g.40gb", "1g.10gb", "1g.10gb"]),
        ("4g,4g", "it wants 2 x 4g.40gb, the GPU can have 1", ["4g.40gb"]),
        ("1g+me,1g+me,2g", "it wants 2 x 1g.10gb+me, the GPU can have 1", ["2g.20gb", "1g.10gb+me"]),
        ("2g,2g,2g,1g,1g", "it wants 8 compute slices, the GPU has 7", ["2g.20gb"] * 3 + ["1g.10gb"]),
        ("5g,1g", "the GPU has no profile 5g: its profiles are 1g.10gb", []),
        ("all-1g.5gb", "the GPU has no profile 1g.5gb", []),
    ],
)
def test_a_layout_that_does_not_fit_says_why_and_what_does(
    layout: str, problem: str, nearest: list[str]
) -> None:
    result = run("--machine", "hgx-h100", "--layout", layout, "-o", "json")

    assert result.exit_code == 3
    (kind,) = json.loads(result.output)["gpuKinds"]
    assert problem in kind["layout"]["problem"]
    assert sorted(one["profile"] for one in kind["layout"]["nearest"]) == sorted(nearest)
    picture = run("--machine", "hgx-h100", "--layout", layout)
    assert picture.exit_code == 3
    assert f"{layout} does not fit: " in picture.output
    assert ("nearest that fits" in picture.output) == bool(nearest)


def test_places_that_overlap_are_named_where_all_else_would_do() -> None:
    profiles = tuple(
        replace(one, placements=one.placements[:1]) if one.profile.name == "2g.20gb" else one
        for one in H100.profiles
    )

    found = fit(("4g", "2g"), replace(H100, profiles=profiles))

    assert found.problem == (
        "its partitions overlap wherever they are placed: 4g.40gb starts at 0; 2g.20gb starts at 0"
    )
    assert [profile.name for profile, _ in found.nearest] == ["4g.40gb"]


def test_an_engine_that_runs_out_is_named() -> None:
    problem = fit(("1g.24gb+me.all", "1g.24gb"), mig_of("rtx-pro-6000-octo")).problem

    assert problem == "it wants 5 decoders, the GPU has 4"


def test_the_named_layouts_of_a_model_are_those_of_mig_parted() -> None:
    assert list(named_layouts(H100)) == [
        "all-1g.10gb",
        "all-2g.20gb",
        "all-3g.40gb",
        "all-4g.40gb",
        "all-7g.80gb",
        "all-1g.10gb.me",
        "all-1g.20gb",
        "all-balanced",
    ]
    assert len(named_layouts(H100)["all-1g.10gb"]) == 7
    output = run("--machine", "hgx-h100").output
    assert "all-1g.20gb: 4 x 1g.20gb; 78.5 GiB, 104 SMs together" in output


@pytest.mark.parametrize("machine", known_machines())
def test_every_machine_can_be_drawn_in_80_columns(machine: str) -> None:
    result = run("--machine", machine)

    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.output.splitlines() if "index" not in line)
    without = {"dgx1-v100", "dgx2", "l4-quad", "l40s-octo", "passthrough-quad", "t4", "vgpu-host-l40s"}
    without |= VGPU_GUESTS
    assert ("the GPU has no MIG" in result.output) == (machine in without)


def test_a_gpu_without_mig_fits_no_layout() -> None:
    result = run("--machine", "l40s-octo", "--layout", "1g")

    assert result.exit_code == 3
    assert "the GPU has no MIG" in result.output


def test_one_gpu_can_be_chosen_and_a_wrong_one_is_named() -> None:
    (kind,) = told("--machine", "hgx-h100", "--gpu", "0000:43:00.0", "--gpu", "00000000:43:00.0")

    assert kind["gpus"] == ["0000:43:00.0"]
    with pytest.raises(ConfigError, match=r"has no GPU at 0000:44:00.0: there are 0000:1b:00.0"):
        run("--machine", "hgx-h100", "--gpu", "0000:44:00.0")
    with pytest.raises(ConfigError, match="is not a PCI address"):
        run("--machine", "hgx-h100", "--gpu", "0")


def test_a_node_configuration_is_drawn_for_each_kind_of_gpu_that_it_makes(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n"
        "- {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}\n"
        "- {when: gpu.index < 4, mig: {layout: [3g, 3g]}}\n"
        "- {when: gpu.index == 4, mig: {layout: [4g, 4g]}}\n"
        "- {when: gpu.index == 5, offer: hidden}\n"
    )
    arguments = ("--machine", "hgx-h100", "--config", str(config))

    kinds = told(*arguments)
    output = run(*arguments).output

    dynamic, layout, wrong, hidden, rest = (kind["offered"] for kind in kinds)
    assert (dynamic["whole"], dynamic["exclusive"], len(dynamic["partitions"])) == (True, True, 9)
    assert (layout["whole"], layout["exclusive"]) == (False, False)
    assert [one["start"] for one in layout["partitions"]] == [0, 4]
    assert wrong["partitions"] == []
    assert "does not fit" in wrong["withheld"][0]
    assert hidden["withheld"] == ["the node configuration hides it"]
    assert (rest["whole"], rest["partitions"], rest["withheld"]) == (True, [], [])
    assert "offered in partitions: any of these that do not overlap" in output
    assert "offered in partitions: all of these, and nothing else" in output
    assert "not offered: the node configuration hides it" in output


@pytest.mark.parametrize("text", ["", ",", "1g,", "x" * 3 + "," * 20])
def test_a_layout_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a layout"):
        read_layout(text)


def test_a_long_name_in_a_narrow_box_loses_its_memory_first() -> None:
    boxes = bar([("1g.10gb+me", Placement(1, 1))], 8).splitlines()[1]

    assert boxes == f"  │········│ 1g+me  │{'·' * 53}│"
    assert len(boxes) == len(bar([], 8).splitlines()[0])
    assert ruler(4).split() == ["0", "1", "2", "3"]


@given(st.lists(st.sampled_from(["1g", "1g+me", "1g.20gb", "2g", "3g", "4g", "7g"]), min_size=1, max_size=8))
def test_what_is_drawn_never_overlaps_and_what_is_nearest_is_a_part_of_what_was_asked(
    names: list[str],
) -> None:
    found = fit(tuple(names), H100)

    for placed in (found.placed, found.nearest):
        covered = [slice_ for _, place in placed for slice_ in range(place.start, place.start + place.size)]
        assert len(covered) == len(set(covered))
        assert set(covered) <= set(range(8))
    assert bool(found.problem) != bool(found.placed)
    if found.problem:
        assert 0 < len(found.nearest) < len(names)
    else:
        assert len(found.placed) == len(names)
