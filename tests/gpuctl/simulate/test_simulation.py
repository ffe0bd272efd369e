"""A simulated cluster gives devices by the scheduler's rules, over simulated time, and repeats itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driver.errors import ConfigError
from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import planned_cluster
from gpuctl.simulate.results import Result
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.trace import load_trace
from gpuctl.simulate.workload import PodGroup, load_workload
from kubernetes_rules.taints import tainted_slices
from tests.gpuctl.simulate.workloads import group, machines, run, run_on, wants

TAINT = {"key": "service", "effect": "NoSchedule"}


def test_pods_fill_all_gpus_and_the_next_one_waits() -> None:
    result = run(group("train", 9))

    (train,) = result.groups
    assert (train.placed, train.waiting) == (8, 1)
    assert (result.tiers["whole"].devices, result.tiers["whole"].allocated) == (8, 8)
    assert [one.free for one in result.fragments] == [0, 0, 0]


def test_a_pod_that_waits_gets_what_another_one_leaves() -> None:
    result = run(group("short", 8, lasts_seconds=100), group("late", 2, starts_seconds=10), nodes=2)

    short, late = result.groups
    assert (short.placed, late.placed, late.waiting) == (8, 2, 0)
    assert late.waits_seconds == [90, 90]
    assert result.ended_seconds == 100
    assert result.tiers["whole"].most_allocated == 8


def test_pods_of_one_group_are_served_in_their_order() -> None:
    result = run(group("batch", 12, lasts_seconds=60, every_seconds=1), nodes=2)

    (batch,) = result.groups
    assert batch.waits_seconds == [0] * 8 + [52] * 4


def test_of_two_groups_that_wait_the_longer_one_is_served_first() -> None:
    blocking = group("blocking", 1, wants(4), lasts_seconds=100)
    late, early = group("late", 1, wants(4), starts_seconds=9), group("early", 1, wants(4), starts_seconds=5)

    result = run(blocking, late, early, nodes=1)

    assert [one.placed for one in result.groups] == [1, 0, 1]


def test_a_claim_never_spans_nodes_and_what_is_left_over_is_told() -> None:
    result = run(group("three", 3, wants(3)), nodes=2)

    assert (result.groups[0].placed, result.groups[0].waiting) == (2, 1)
    assert [(one.gpus, one.free, one.usable) for one in result.fragments] == [(1, 2, 2), (2, 2, 0), (4, 2, 0)]


def test_constraints_and_several_claims_count() -> None:
    island = [{"matchAttribute": "gpu.nvidia.com/nvlinkDomain"}]

    linked = run(group("pair", 3, wants(2, constraints=island)), nodes=1)
    too_large = run(group("triple", 1, wants(3, constraints=island)), nodes=1)
    both = run(group("double", 3, wants(1), wants(1)), nodes=1)

    assert (linked.groups[0].placed, linked.groups[0].waiting) == (2, 1)
    assert too_large.groups[0].waiting == 1
    assert (both.groups[0].placed, both.groups[0].waiting) == (2, 1)


def test_a_group_that_can_never_run_says_why_and_stops_nobody_else() -> None:
    result = run(group("wrong", 5, wants(device_class="no-such-class")), group("right", 3))

    wrong, right = result.groups
    assert (wrong.placed, wrong.waiting, right.placed) == (0, 5, 3)
    assert wrong.error is not None
    assert "no-such-class" in wrong.error


def test_the_same_seed_gives_the_same_and_another_one_may_not() -> None:
    groups = (group("ones", 8, every_seconds=1), group("fours", 3, wants(4), starts_seconds=20))

    assert run(*groups, nodes=5) == run(*groups, nodes=5)
    placements = {run(*groups, nodes=5, seed=seed).groups[1].placed for seed in range(9)}
    assert len(placements) > 1


def test_every_error_of_a_workload_file_is_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(
        "version: v1\npods:\n- {name: A, count: 0, claims: []}\n- {name: b, count: 1, colour: red}\n"
    )

    with pytest.raises(ConfigError) as caught:
        load_workload(path)

    for part in ("pods[0].name", "pods[0].count", "pods[0].claims", "pods[1]: ", "colour", "claims"):
        assert part in str(caught.value)


def test_names_of_groups_are_unique(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    one = "- {name: a, count: 1, claims: [{devices: {}}]}\n"
    path.write_text(f"version: v1\npods:\n{one}{one}")

    with pytest.raises(ConfigError, match="the name a is used twice"):
        load_workload(path)


def mig_run(folder: Path, *groups: PodGroup, nodes: int = 1) -> Result:
    """A run over nodes with two GPUs that are offered whole and in parts, with a class for each form."""
    config = folder / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n"
        "- {when: gpu.index < 2, mig: {dynamic: {profiles: [1g, 3g]}}}\n- offer: hidden\n"
    )
    attributes = 'device.attributes["gpu.nvidia.com"]'
    expressions = {
        "whole": f'{attributes}.type == "gpu"',
        "small": f'{attributes}.type == "mig" && {attributes}.profile == "1g.10gb"',
    }
    classes = [
        {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": one}}]}}
        for name, one in expressions.items()
    ]
    slices = plan_node("hgx-h100", "node", config).slices
    return Simulation(planned_cluster([(nodes, slices)], classes), groups, 1).run(lambda _: None)


def test_a_gpu_that_is_cut_is_no_free_whole_gpu(tmp_path: Path) -> None:
    result = mig_run(tmp_path, group("small", 1, wants(1, "small")))

    assert (result.tiers["whole"].allocated, result.tiers["whole"].free) == (0, 1)
    assert (result.tiers["mig 1g.10gb"].allocated, result.tiers["mig 1g.10gb"].free) == (1, 13)
    assert result.tiers["mig 3g.40gb"].free == 3
    assert [(one.gpus, one.free, one.usable) for one in result.fragments] == [(1, 1, 1), (2, 1, 0)]


def test_small_pods_and_whole_pods_fill_gpus_without_overbooking(tmp_path: Path) -> None:
    result = mig_run(tmp_path, group("small", 7, wants(1, "small")), group("whole", 2, wants(1, "whole")))

    small, whole = result.groups
    assert (small.placed, whole.placed, whole.waiting) == (7, 1, 1)
    assert {tier: found.free for tier, found in result.tiers.items()} == {
        "whole": 0,
        "mig 1g.10gb": 0,
        "mig 3g.40gb": 0,
    }


def test_who_only_looks_on_uses_no_gpu() -> None:
    looking = wants(4)
    looking["devices"]["requests"][0]["exactly"]["adminAccess"] = True

    result = run(group("train", 1, wants(1)), group("monitor", 5, looking), nodes=1, machine="a30-quad")

    assert [one.placed for one in result.groups] == [1, 5]
    assert (result.tiers["whole"].allocated, result.gpus["NVIDIA A30"].in_use) == (1, 1)


def test_a_pool_that_is_invalid_closes_its_node_and_no_other() -> None:
    good = machines(("a30-quad", 2))
    (first, *rest) = good.slices
    devices = first["spec"]["devices"]
    invalid = {**first, "spec": {**first["spec"], "devices": [*devices, devices[0]]}}

    result = run_on(replace(good, slices=(invalid, *rest)), group("train", 5))

    (train,) = result.groups
    assert (train.placed, train.waiting, train.error) == (4, 1, None)


def test_a_tainted_device_is_not_free() -> None:
    good = machines(("a30-quad", 1))
    rule = {"spec": {"deviceSelector": {"device": "gpu-0000-17-00-0"}, "taint": TAINT}}

    result = run_on(replace(good, slices=tuple(tainted_slices(good.slices, [rule]))), group("train", 1))

    assert (result.tiers["whole"].devices, result.tiers["whole"].free) == (4, 2)
    assert result.fragments[0].free == 2


def test_a_device_that_many_nodes_reach_is_free_on_all_when_a_pod_on_one_ends() -> None:
    good = machines(("t4", 2))
    net = {
        "metadata": {"name": "net"},
        "spec": {
            "driver": "net.example.com",
            "allNodes": True,
            "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "port"}],
        },
    }
    selector = {"cel": {"expression": 'device.driver == "net.example.com"'}}
    port = {"metadata": {"name": "port"}, "spec": {"selectors": [selector]}}
    cluster = replace(good, slices=(*good.slices, net), classes=(*good.classes, port))
    half = group("half", 1, wants(1))  # of the two nodes one has no GPU left
    first = group("first", 1, wants(1, "port"), lasts_seconds=60)
    both = group("both", 1, wants(1, "port"), wants(1), starts_seconds=10)

    results = [run_on(cluster, half, first, both, seed=seed).groups for seed in range(8)]

    assert [groups[2].waits_seconds for groups in results] == [[50]] * 8


def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    result = run(group("gangs", 2, gang=6), group("ones", 3, starts_seconds=1))

    gangs, ones = result.groups
    # Of eight GPUs the first gang has six. The second one does not keep the rest from others.
    assert (gangs.pods, gangs.placed, gangs.waiting) == (12, 6, 6)
    assert (ones.placed, ones.waiting) == (2, 1)
    assert (result.tiers["whole"].allocated, result.tiers["whole"].most_allocated) == (8, 8)
    assert result.most_waiting == 7


def test_a_gang_that_waits_says_how_many_of_its_pods_find_a_place() -> None:
    result = run(group("gang", 1, wants(3), gang=3))

    assert [(one.reason, one.devices) for one in result.groups[0].why] == [
        ("2 of the 3 pods of a gang find a place", 0),
        ("in use by pods of gang", 6),
        ("free, but not enough on one node", 2),
    ]
    assert (result.groups[0].waiting, result.tiers["whole"].allocated) == (3, 0)


def test_a_gang_is_placed_once_enough_has_ended_and_ends_as_a_whole() -> None:
    ones = group("ones", 3, lasts_seconds=100)
    result = run(ones, group("gang", 1, gang=8, starts_seconds=1, lasts_seconds=50), hours=1)

    assert result.groups[1].waits_seconds == [99] * 8
    assert result.tiers["whole"].allocated == 0
    assert result.tiers["whole"].hours_in_use == pytest.approx((3 * 100 + 8 * 50) / 3600)


def test_gangs_of_a_trace_count_as_gangs(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,pod,count\n0,gang,2\n")
    groups = (group("gang", 0, gang=3),)
    result = Simulation(machines(("a30-quad", 2)), groups, 1, None, load_trace(path, groups)).run(
        lambda _: None
    )

    assert (result.groups[0].pods, result.groups[0].placed) == (6, 6)


def test_a_workload_may_not_have_more_pods_in_gangs_than_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text("version: v1\npods:\n- {name: a, count: 100000, gang: 11, claims: [{devices: {}}]}\n")

    with pytest.raises(ConfigError, match="more than 1,000,000 pods"):
        load_workload(path)
