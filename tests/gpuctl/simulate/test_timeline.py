"""A timeline has the mean of each step: pods that wait, GPUs by class, and how fragmented free GPUs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import SimulatedCluster, load_classes, planned_cluster
from gpuctl.simulate.results import Course, Result
from gpuctl.simulate.simulation import Simulation
from gpuctl.simulate.timeline import MOST_STEPS, Averages, Timeline
from gpuctl.simulate.trace import Arrival
from gpuctl.simulate.workload import PodGroup
from tests.gpuctl.simulate.workloads import CLASS, group, machines, wants


def run(
    cluster: SimulatedCluster, groups: list[PodGroup], *trace: Arrival, until: float | None = None
) -> tuple[Result, Course]:
    result = Simulation(cluster, groups, 1, until, trace, Timeline(cluster)).run(lambda _: None)
    assert result.course is not None
    return result, result.course


@pytest.fixture
def in_parts(tmp_path: Path) -> SimulatedCluster:
    """A node with two GPUs that are offered in seven partitions, whole, and in four shares."""
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n- when: gpu.index < 2\n  mig: {dynamic: {profiles: [1g]}}\n"
        "  shared: {strategy: TimeSlicing, shares: 4}\n- offer: hidden\n"
    )
    return planned_cluster([(1, plan_node("hgx-h100", "node", config).slices)], load_classes(()))


def test_a_mean_is_over_the_time_that_a_value_lasted() -> None:
    averages = Averages()
    averages.change("pods", 4, 0.5)
    averages.change("pods", 1, 2.0)
    averages.run_until(2.25)

    assert averages.of("pods") == (2, 4, 1)
    assert averages.hours("pods") * 3600 == 0.5 * 4 + 4 + 0.25


def test_steps_become_longer_and_nothing_is_lost() -> None:
    averages = Averages()
    averages.change("pods", 3, 0)
    averages.change("pods", 0, 7)
    averages.run_until(10 * MOST_STEPS)

    assert averages.step_seconds == 16
    assert averages.of("pods")[:2] == (3 * 7 / 16, 0)
    assert len(averages.of("pods")) == 10 * MOST_STEPS / 16
    assert averages.hours("pods") == pytest.approx(21 / 3600)


def test_pods_of_a_trace_run_as_long_as_it_says_and_wait_meanwhile() -> None:
    groups = [group("train", 0, wants(4))]
    trace = (Arrival(0, 0, 1, 10), Arrival(2, 0, 2, 4))

    result, course = run(machines(("a30-quad", 1)), groups, *trace, until=20)

    assert result.groups[0].waits_seconds == [0, 8, 12]
    assert (result.groups[0].pods, result.groups[0].median_wait, result.groups[0].p95_wait) == (3, 8, 12)
    assert result.most_waiting == 2
    assert course.waiting == (*[0.0] * 2, *[2.0] * 8, *[1.0] * 4, *[0.0] * 6)
    assert course.gpus == {CLASS: (*[4.0] * 18, 0.0, 0.0)}
    assert course.gpu_hours[CLASS] * 3600 == pytest.approx(4 * 18)


def test_pods_of_a_trace_come_beside_those_that_are_counted() -> None:
    groups = [group("serve", 1, wants(3)), group("late", 0, lasts_seconds=5)]

    result, _ = run(machines(("a30-quad", 1)), groups, Arrival(3, 1, 2, 5))

    assert [(one.pods, one.placed) for one in result.groups] == [(1, 1), (2, 2)]
    assert result.groups[1].waits_seconds == [0, 5]


def test_priority_comes_before_arrival_and_arrival_before_the_order_of_groups() -> None:
    groups = [group("low", 0), group("high", 0, priority=5), group("other", 0)]
    trace = (Arrival(0, 0, 1, 10), Arrival(1, 2, 1, 10), Arrival(2, 0, 1, 10), Arrival(3, 1, 1, 10))

    result, _ = run(machines(("t4", 1)), groups, *trace, until=50)

    assert {one.name: one.waits_seconds for one in result.groups} == {
        "low": [0, 28],
        "high": [7],
        "other": [19],
    }


def test_a_large_pod_that_waits_does_not_keep_small_ones_of_other_groups_away() -> None:
    groups = [group("large", 0, wants(4), priority=9), group("small", 0)]

    result, _ = run(
        machines(("a30-quad", 1)), groups, Arrival(0, 1, 1, 100), Arrival(1, 0, 1, 9), Arrival(2, 1, 1, 9)
    )

    assert [one.waits_seconds for one in result.groups] == [[99], [0, 0]]


def test_parts_of_gpus_are_added_up_by_class_and_leave_fragments(in_parts: SimulatedCluster) -> None:
    groups = [group("small", 0, wants(1, "mig.nvidia.com")), group("share", 0, wants(1, "shared-timesliced"))]
    trace = (Arrival(0, 0, 2, 8), Arrival(4, 1, 1, 4), Arrival(9, 0, 1, 1))

    _, course = run(in_parts, groups, *trace)

    assert course.all_gpus == 2
    assert [round(one, 3) for one in course.gpus["mig.nvidia.com"]] == [*[0.25] * 8, 0.0]
    assert course.gpus["shared-timesliced"] == (*[0.0] * 4, *[0.25] * 4, 0.0)
    # First 0.75 of 1.75 free GPUs are on the one that is cut, then all that is free is on such a GPU.
    assert [round(one, 3) for one in course.fragmentation] == [*[0.429] * 4, *[1.0] * 4, 0.0]


def test_a_peak_between_two_steps_is_the_most_that_was_in_use() -> None:
    result, course = run(
        machines(("a30-quad", 1)), [group("short", 0, wants(4))], Arrival(5, 0, 1, 1), until=7000
    )

    assert max(course.gpus[CLASS]) < 1
    assert course.most_gpus == {CLASS: 4.0}
    assert result.tiers["whole"].most_allocated == 4


def test_whole_gpus_leave_no_fragments() -> None:
    _, course = run(machines(("a30-quad", 1)), [group("train", 0, wants(3))], Arrival(0, 0, 1, 5), until=5)

    assert course.fragmentation == (0,) * 5
