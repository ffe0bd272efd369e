"""What nodes offer to containers and to virtual machines at once is valid, can be had, and is had once."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kubernetes_rules.validation.dra_kinds import errors_of
from tools.conformance.allocation.area import our_answer
from tools.conformance.area import Case
from tools.conformance.nodes.mig_nodes import inventory, one_rule
from tools.conformance.nodes.passthrough_area import (
    AREA,
    MACHINES,
    RULES,
    handed_out_twice,
    offered_by,
    questions,
    written_cases,
)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Every question about four GPUs of each machine: two groups where they go in pairs."""
    return written_cases(gpus=4)


@pytest.fixture(scope="module")
def asked(cases: list[Case]) -> list[Case]:
    """The questions about allocations."""
    return [case for case in cases if case["op"] == "allocate"]


def test_every_slice_is_taken_by_the_api_server(cases: list[Case]) -> None:
    published = [case["object"] for case in cases if case["op"] == "validate"]

    assert [error for one in published for error in errors_of(one)] == []
    taken = [
        device.get("consumesCounters", ())
        for one in published
        for device in one["spec"].get("devices", ())
        if device["attributes"]["type"] == {"string": "vfio"}
    ]
    assert {len(sets) for sets in taken} == {0, 1, 2}


def test_every_kind_of_device_is_allocated(asked: list[Case]) -> None:
    alone = [case for case in asked if " beside " not in case["name"]]

    assert [case["name"] for case in alone if "results" not in our_answer(case)] == []
    assert len(alone) >= 200


def test_nothing_is_left_for_containers_when_virtual_machines_have_all(asked: list[Case]) -> None:
    beside = [case for case in asked if " beside " in case["name"]]

    assert [case["name"] for case in beside if "results" in our_answer(case)] == []
    assert len(beside) >= 200


@pytest.mark.parametrize("word", RULES)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_gpu_of_every_machine_is_offered_to_virtual_machines(machine: str, word: str) -> None:
    offered = offered_by(machine, one_rule(RULES[word]))

    virtual = {
        region.pci for one in offered.devices if one.attributes["type"] == "vfio" for region in one.regions
    }
    assert virtual == {function.pci for function in inventory(machine, "delivered").pci.physical}


def test_no_gpu_is_handed_out_twice_whatever_is_asked_for() -> None:
    chance = Random("twice")  # noqa: S311 - no secret
    answered = [(case, our_answer(case)) for case in (AREA.random(chance) for _ in range(200))]

    assert [found for case, answer in answered if (found := handed_out_twice(case, answer))] == []
    given = [case for case, answer in answered if "results" in answer and case["allocated"]]
    assert len(given) >= 50


def test_a_form_without_counters_would_be_seen_to_be_handed_out_twice() -> None:
    offered = offered_by("l40s-octo", one_rule(RULES["whole"]), 1)
    without = replace(
        offered,
        devices=tuple(replace(one, counter_set="", consumes={}) for one in offered.devices),
        counter_sets=(),
    )
    asked = [case for case in questions("no counters", without) if "beside" in case.get("name", "")]

    assert any(handed_out_twice(case, our_answer(case)) for case in asked)
