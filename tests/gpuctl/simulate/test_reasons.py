"""Pods that wait at the end of a simulation say why, as explain would say it, added up over the nodes."""

from __future__ import annotations

from pathlib import Path

from gpuctl.plan.planned import plan_node
from gpuctl.simulate.cluster import load_classes, planned_cluster
from gpuctl.simulate.results import Result, Why
from tests.gpuctl.simulate.workloads import group, machines, run, run_on, wants


def why(result: Result, name: str) -> list[Why]:
    return list(next(one for one in result.groups if one.name == name).why)


def test_pods_wait_for_the_devices_of_the_groups_that_have_them() -> None:
    result = run(group("train", 2, wants(3)), group("infer", 1), group("late", 2, wants(2)), nodes=2)

    assert why(result, "train") == []
    assert why(result, "late") == [
        Why("in use by pods of train", 6, 2),
        Why("free, but not enough on one node", 1, 1),
        Why("in use by pods of infer", 1, 1),
    ]


def test_pods_that_had_to_wait_say_why_the_first_had_to() -> None:
    result = run(
        group("train", 1, wants(3), lasts_seconds=100),
        group("more", 1, starts_seconds=5, lasts_seconds=200),
        group("late", 2, wants(2), starts_seconds=10, lasts_seconds=50),
        nodes=1,
    )

    late = result.groups[2]
    assert (late.placed, late.waits_seconds, late.why_seconds) == (2, [90, 140], 10)
    assert late.why == (Why("in use by pods of train", 3, 1), Why("in use by pods of more", 1, 1))
    assert (result.groups[0].why, result.groups[0].why_seconds) == ((), None)


def test_pods_that_still_wait_say_why_they_do_at_the_end() -> None:
    groups = (group("short", 1, wants(4), lasts_seconds=100), group("long", 1, wants(3), starts_seconds=1))

    result = run(*groups, group("late", 1, wants(4), starts_seconds=2), nodes=1)

    assert result.groups[2].why_seconds == 100
    assert why(result, "late") == [
        Why("in use by pods of long", 3, 1),
        Why("free, but not enough on one node", 1, 1),
    ]


def test_like_nodes_count_as_many_as_there_are() -> None:
    result = run(group("train", 500, wants(4)), group("late", 1), nodes=500)

    assert why(result, "late") == [Why("in use by pods of train", 2000, 500)]


def test_what_no_node_can_ever_give_is_said_first() -> None:
    result = run(group("huge", 1, wants(5)), nodes=3)

    never, free = why(result, "huge")
    assert never.reason == (
        "no node can ever serve request gpus, which wants 5 devices of class gpu.nvidia.com: the "
        "most on one node is 4, on node-0"
    )
    assert (never.devices, never.nodes) == (0, 0)
    assert free == Why("free, but not enough on one node", 12, 3)


def test_devices_that_selectors_rule_out_are_told_with_the_part_that_is_false() -> None:
    selectors = [{"cel": {"expression": 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA A30"'}}]
    picky = wants()
    picky["devices"]["requests"][0]["exactly"]["selectors"] = selectors

    result = run_on(machines(("a30-quad", 1), ("hgx-h100", 1)), group("a30", 5, picky))

    assert why(result, "a30") == [
        Why(
            'not true for these: device.attributes["gpu.nvidia.com"].productName == "NVIDIA A30"; '
            "productName is NVIDIA H100 80GB HBM3",
            8,
            1,
        ),
        Why("in use by pods of a30", 4, 1),
    ]


def test_a_constraint_that_fails_is_told() -> None:
    island = [{"matchAttribute": "gpu.nvidia.com/nvlinkDomain"}]

    result = run(group("triple", 1, wants(3, constraints=island)), nodes=1)

    assert why(result, "triple")[0].reason == (
        "no node can ever have enough devices that meet the constraint on gpu.nvidia.com/nvlinkDomain"
    )


def test_several_requests_are_told_apart() -> None:
    two = wants()
    two["devices"]["requests"].append({**two["devices"]["requests"][0], "name": "more"})

    result = run(group("all", 1, wants(4)), group("two", 1, two), nodes=1)

    assert [one.reason for one in why(result, "two")] == [
        "gpus: in use by pods of all",
        "more: in use by pods of all",
    ]


def test_a_gpu_that_is_taken_in_another_form_names_the_pods_that_have_it(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n- {when: gpu.index == 0, mig: {dynamic: {profiles: [1g]}}}\n- offer: hidden\n"
    )
    slices = plan_node("hgx-h100", "node", config).slices

    result = run_on(
        planned_cluster([(2, slices)], load_classes(())),
        group("small", 2, wants(7, "mig.nvidia.com")),
        group("whole", 1),
    )

    assert Why("their GPU is taken in another form by pods of small", 2, 2) in why(result, "whole")


def test_shares_that_are_too_small_name_who_has_the_rest(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        "version: v1\nrules:\n- {when: gpu.index == 0, shared: {strategy: TimeSlicing, shares: 4}}\n"
    )
    slices = plan_node("t4", "node", config).slices

    result = run_on(
        planned_cluster([(1, slices)], load_classes(())),
        group("notebook", 5, wants(1, "shared-timesliced")),
    )

    assert result.groups[0].placed == 4
    assert why(result, "notebook") == [Why("too little is left next to pods of notebook", 1, 1)]


def test_pods_that_insist_on_memory_that_holds_say_which_nodes_hold_none(tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text("version: v1\nrules:\n- {shared: {strategy: TimeSlicing, shares: 4}}\n")
    nodes = [(1, plan_node(machine, "node", config).slices) for machine in ("l4-quad", "a30-quad")]

    held = run_on(planned_cluster(nodes, load_classes(())), group("held", 17, wants(1, "shared-memory")))
    counted = run_on(
        planned_cluster(nodes[1:], load_classes(())), group("held", 1, wants(1, "shared-memory"))
    )

    assert (held.groups[0].placed, counted.groups[0].placed) == (16, 0)
    assert Why("too little is left next to pods of held", 4, 1) in why(held, "held")
    for result in (held, counted):
        assert any(
            "memory limits of shares are not enforced there: its NVIDIA driver 570.133.20 is older than R615"
            in one.reason
            for one in why(result, "held")
        )


def test_a_group_whose_claims_are_wrong_has_an_error_and_no_reasons() -> None:
    result = run(group("wrong", 1, wants(1, "no-such-class")))

    assert result.groups[0].error is not None
    assert why(result, "wrong") == []
