"""Virtual functions are asked for where the rule says so, they are off, and a vGPU manager runs the GPU."""

from dataclasses import replace

import pytest

from driver.kinds.vgpu.kind import BEING_MADE, NO_PLACE
from driver.policy.rules import virtual_to_enable
from tests.driver.kinds.vgpu.hosts import L40S, inventory
from tests.gpus import Inventory, PciView, node_offers
from tools.conformance.nodes.mig_nodes import one_rule

WITH, WITHOUT = "vgpu: {profiles: [L40S-8Q], virtualFunctions: enabled}", "vgpu: {profiles: [L40S-8Q]}"


def off(found: Inventory) -> Inventory:
    """The host before anybody has turned them on."""
    gpus = tuple(
        replace(gpu, vgpu=replace(gpu.vgpu, framework=None, places=())) if gpu.vgpu else gpu
        for gpu in found.gpus
    )
    functions = tuple(
        replace(function, virtual=()) for function in found.pci.functions if function.physical is None
    )
    return replace(found, gpus=gpus, pci=replace(found.pci, functions=functions))


def test_those_that_are_off_are_asked_for_where_a_rule_says_so() -> None:
    found = off(inventory(L40S))
    assert virtual_to_enable(found, one_rule(WITH)) == {gpu.pci for gpu in found.gpus}
    assert {one.reason for one in node_offers(found, one_rule(WITH)).withheld} == {BEING_MADE}


@pytest.mark.parametrize("rule", [WITHOUT, "offer: passthrough", "offer: whole"])
def test_without_the_word_nothing_is_asked_for_and_the_reason_says_what_to_do(rule: str) -> None:
    found = off(inventory(L40S))
    assert virtual_to_enable(found, one_rule(rule)) == virtual_to_enable(found, None) == frozenset()
    if rule == WITHOUT:
        assert {one.reason for one in node_offers(found, one_rule(rule)).withheld} == {NO_PLACE}


def test_those_that_are_on_are_not_asked_for() -> None:
    assert virtual_to_enable(inventory(L40S), one_rule(WITH)) == frozenset()


def test_a_gpu_that_no_vgpu_manager_runs_is_left_alone() -> None:
    found = off(inventory(L40S))
    plain = replace(found, gpus=tuple(replace(gpu, vgpu=None) for gpu in found.gpus))
    assert virtual_to_enable(plain, one_rule(WITH)) == frozenset()

    found = off(inventory(L40S))
    functions = tuple(replace(function, total_virtual=0) for function in found.pci.functions)
    flat = replace(found, pci=PciView(functions))
    assert virtual_to_enable(flat, one_rule(WITH)) == frozenset()
