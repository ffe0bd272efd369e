"""``gpuctl plan --partitions`` says which layouts fit a GPU and draws where each partition lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.plan.partitions import fit, read_layout
from tests.clusters import plan_node
from tests.fakegpu.guests import VGPU_GUESTS
from tests.gpuctl.plan.printed import printed
from tests.gpus import GpuMig, known_machines

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


@pytest.mark.parametrize("machine", known_machines())
def test_every_machine_can_be_drawn_in_80_columns(machine: str) -> None:
    text = printed("plan", "--partitions", "--machine", machine)

    assert "exit code" not in text
    assert all(len(line) <= 80 for line in text.splitlines() if "index" not in line)
    assert ("the GPU has no MIG" in text) == (machine in {*WITHOUT_MIG, *VGPU_GUESTS})


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
