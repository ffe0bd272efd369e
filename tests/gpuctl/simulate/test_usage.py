"""A simulation counts GPU-hours, what was waited for and what that costs, over the time that it covers."""

from __future__ import annotations

import pytest

from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.results import ClassResult, GpuResult, cost_of
from gpuctl.simulate.usage import Level
from tests.gpuctl.simulate.workloads import CLASS, group, machines, run, run_on, wants

A30, H100 = "NVIDIA A30", "NVIDIA H100 80GB HBM3"
HOUR = 3600.0


def test_a_level_adds_up_what_it_was_over_time() -> None:
    level = Level(2)
    level.change(3, 1 * HOUR)
    level.change(-4, 2 * HOUR)

    assert (level.value, level.most) == (1, 5)
    assert level.hours(4 * HOUR) == 2 + 5 + 1 * 2


def test_hours_are_counted_until_the_given_end() -> None:
    result = run(group("train", 3, wants(2), lasts_seconds=2 * HOUR), hours=10)

    assert result.ended_seconds == 10 * HOUR
    assert result.gpus == {A30: GpuResult(gpus=8, in_use=0, hours=80, hours_in_use=12, hours_idle=68)}
    assert (result.gpu_hours, result.hours_in_use, result.gpus[A30].hours_idle) == (80, 12, 68)
    assert (result.tiers["whole"].hours_in_use, result.tiers["whole"].hours_idle) == (12, 68)


def test_pods_that_run_on_at_the_end_are_counted_until_then() -> None:
    result = run(group("serve", 2), group("train", 1, wants(4), lasts_seconds=99 * HOUR), hours=3)

    assert result.gpus[A30] == GpuResult(gpus=8, in_use=6, hours=24, hours_in_use=18, hours_idle=6)


def test_pods_take_over_from_others_also_after_all_have_come() -> None:
    result = run(group("job", 3, wants(4), lasts_seconds=HOUR), nodes=1, hours=5)

    assert (result.groups[0].placed, result.groups[0].waits_seconds) == (3, [0, HOUR, 2 * HOUR])
    assert result.gpus[A30].hours_in_use == 12


def test_a_run_without_an_end_covers_the_time_until_all_are_placed() -> None:
    result = run(group("job", 3, wants(4), lasts_seconds=HOUR), nodes=1)

    assert result.ended_seconds == 2 * HOUR
    assert (result.gpus[A30].hours_in_use, result.gpus[A30].in_use) == (8, 4)


def test_what_is_waited_for_is_counted_by_class_in_devices_and_hours() -> None:
    result = run(group("first", 2, wants(4)), group("late", 3, wants(2), starts_seconds=HOUR), hours=5)

    assert result.classes == {CLASS: ClassResult(waiting=6, hours_waited=24)}


def test_nobody_who_waits_is_no_shortage() -> None:
    assert run(group("few", 2), hours=5).classes == {}


def test_of_alternatives_the_first_is_what_was_waited_for() -> None:
    subs = [{"name": "big", "deviceClassName": CLASS, "count": 4}, {"name": "any", "deviceClassName": "gone"}]
    either = {"devices": {"requests": [{"name": "gpus", "firstAvailable": subs}]}}

    assert group("one", 1, either, wants(2)).devices_by_class() == {CLASS: 6}


def test_gpus_are_told_by_product_where_machines_differ() -> None:
    result = run_on(machines(("a30-quad", 1), ("hgx-h100", 2)), group("big", 2, wants(8)), hours=2)

    assert {product: (one.gpus, one.in_use) for product, one in result.gpus.items()} == {
        A30: (4, 0),
        H100: (16, 16),
    }
    assert (result.gpus[A30].hours_idle, result.gpus[H100].hours_idle) == (8, 0)


def test_a_gpu_of_which_pods_have_parts_is_in_use_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    config = tmp_path_factory.mktemp("node") / "node.yaml"
    config.write_text("version: v1\nrules:\n- mig: {dynamic: {profiles: [1g]}}\n")
    slices = plan_node("hgx-h100", "node", config).slices
    small = group("small", 8, wants(1, "mig.nvidia.com"))

    result = run_on(planned_cluster([(1, slices)], load_classes(())), small, hours=1)

    assert result.groups[0].placed == 8
    assert (result.gpus[H100].in_use, result.gpus[H100].hours_in_use) == (2, 2)
    assert result.tiers["mig 1g.10gb"].hours_in_use == 8
    assert result.tiers["mig 1g.10gb"].hours_idle is None
    assert result.tiers["whole"].hours_idle is None


def test_work_is_what_the_workload_says_pods_do() -> None:
    busy = group("train", 1, wants(4), busy_gpus=3.8)
    idle = group("notebook", 4, busy_gpus=0.05)

    assert run(busy, idle, hours=10).busy_hours == pytest.approx(38 + 2)
    assert run(busy, group("unknown", 1), hours=10).busy_hours is None


def test_who_was_never_placed_does_no_work() -> None:
    result = run(group("train", 1, wants(4), busy_gpus=4), group("unknown", 1, wants(5)), hours=10)

    assert result.busy_hours == pytest.approx(40)


def test_eight_tenants_of_a_cluster_that_is_full_and_half_idle() -> None:
    """All is allocated, some wait, and yet about half of the GPU-hours are no work."""
    result = run(
        group("train", 4, wants(4), busy_gpus=3.8),
        group("infer", 12, busy_gpus=0.15),
        group("notebook", 8, busy_gpus=0.05),
        nodes=4,
        machine="dgx-a100-80gb",
        hours=730,
    )

    assert [(one.name, one.placed, one.waiting) for one in result.groups] == [
        ("train", 4, 0),
        ("infer", 12, 0),
        ("notebook", 4, 4),
    ]
    assert result.hours_in_use == result.gpu_hours == 32 * 730
    assert result.classes == {CLASS: ClassResult(waiting=4, hours_waited=4 * 730)}
    assert result.busy_hours == pytest.approx(730 * (4 * 3.8 + 12 * 0.15 + 4 * 0.05))
    cost = cost_of(result, 3.06)
    assert cost.total == pytest.approx(71_481.60)
    assert cost.idle == 0
    assert cost.without_work == pytest.approx(730 * 3.06 * (32 - 17.2))


def test_what_nobody_knows_about_work_costs_nothing_known() -> None:
    cost = cost_of(run(group("some", 4), hours=10), 2.0)

    assert (cost.total, cost.idle, cost.without_work) == (160, 80, None)
