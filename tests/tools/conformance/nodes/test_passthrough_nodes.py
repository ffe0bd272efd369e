"""What nodes offer to containers and to virtual machines at once is had once."""

from dataclasses import replace
from random import Random

import pytest

from tools.conformance.allocation.area import our_answer
from tools.conformance.nodes.mig_nodes import inventory, one_rule
from tools.conformance.nodes.passthrough_area import (
    AREA,
    MACHINES,
    RULES,
    handed_out_twice,
    offered_by,
    questions,
)


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
