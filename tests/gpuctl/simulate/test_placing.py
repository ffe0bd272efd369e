"""A simulated cluster gives devices by the scheduler's rules, counts them once, and repeats itself."""

from pathlib import Path

import pytest

from gpuctl.simulate.cluster import SimulatedCluster, load_classes, planned_cluster
from gpuctl.simulate.placing import simulate
from tests.clusters import plan_node
from tests.gpuctl.simulate.workloads import group, run, wants

SMALL = wants(1, "mig-small")


@pytest.fixture
def parts(tmp_path: Path) -> SimulatedCluster:
    """A node with two GPUs that are offered whole and in parts."""
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n"
        "- {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}\n- offer: hidden\n"
    )
    return planned_cluster([(1, plan_node("hgx-h100", "node", config).slices)], load_classes(()))


def test_constraints_and_several_claims_count() -> None:
    island = [{"matchAttribute": "gpu.nvidia.com/nvlinkDomain"}]

    linked = run(group("pair", 3, wants(2, constraints=island)), nodes=1)
    both = run(group("double", 3, wants(1), wants(1)), nodes=1)

    assert [(one.groups[0].placed, one.groups[0].waiting) for one in (linked, both)] == [(2, 1)] * 2


def test_the_same_seed_gives_the_same_and_another_one_may_not() -> None:
    groups = (group("ones", 8), group("fours", 3, wants(4)))

    assert run(*groups, nodes=5) == run(*groups, nodes=5)
    assert len({run(*groups, nodes=5, seed=seed).groups[1].placed for seed in range(5)}) > 1


@pytest.mark.parametrize("seed", range(3))
def test_a_gpu_is_in_use_once_in_every_table_and_never_more_are_than_there_are(
    parts: SimulatedCluster, seed: int
) -> None:
    cut = simulate(parts, [group("small", 20, SMALL)], seed)
    whole = run(group("train", 9), nodes=2, seed=seed)

    assert (cut.tiers["mig 1g.10gb"].allocated, cut.groups[0].placed) == (14, 14)
    assert [(one.gpus, one.in_use) for one in cut.gpus.values()] == [(2, 2)]
    assert [(one.gpus, one.in_use) for one in whole.gpus.values()] == [(8, 8)]
    assert (whole.tiers["whole"].allocated, whole.groups[0].placed) == (8, 8)


def test_who_only_looks_on_uses_no_gpu() -> None:
    looking = wants(4)
    looking["devices"]["requests"][0]["exactly"]["adminAccess"] = True

    result = run(group("train", 1, wants(1)), group("monitor", 5, looking), nodes=1)

    assert [one.placed for one in result.groups] == [1, 5]
    assert (result.tiers["whole"].allocated, result.gpus["NVIDIA A30"].in_use) == (1, 1)
