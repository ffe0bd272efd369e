"""What every machine publishes under every shipped node configuration is valid, and can be given out."""

from __future__ import annotations

import pytest

from driver.policy.offers import Offers
from kubernetes_rules.validation.dra_kinds import errors_of
from tools.conformance.allocation.area import our_answer
from tools.conformance.area import Case
from tools.conformance.nodes.mig_area import kind_of, written_cases
from tools.conformance.nodes.mig_nodes import (
    MIG_MACHINES,
    MIG_SAMPLES,
    State,
    inventory,
    offers,
    sample,
)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Every question about the machines, with all of their GPUs."""
    return written_cases(gpus=None)


def test_every_slice_is_taken_by_the_api_server(cases: list[Case]) -> None:
    asked = [case["object"] for case in cases if case["op"] == "validate"]

    assert [error for one in asked for error in errors_of(one)] == []
    assert len(asked) >= 100
    assert any("sharedCounters" in one["spec"] for one in asked)


def test_every_kind_of_device_and_every_layout_as_a_whole_is_allocated(cases: list[Case]) -> None:
    asked = [case for case in cases if case["op"] == "allocate"]

    assert [case["name"] for case in asked if "results" not in our_answer(case)] == []
    assert len(asked) >= 200


def test_all_partitions_of_a_layout_can_be_in_use_at_once(cases: list[Case]) -> None:
    [case] = [case for case in cases if case.get("name") == "hgx-h200 delivered mig-layouts: all 32"]

    [allocation] = our_answer(case)["results"]

    given = [result["device"] for result in allocation["devices"]["results"]]
    assert sorted(given) == sorted(one["name"] for spec in case["slices"] for one in spec["spec"]["devices"])


def kinds(offered: Offers) -> set[str]:
    """The types and profiles that are offered."""
    return {kind_of(device).replace("device.attributes['gpu.nvidia.com'].", "") for device in offered.devices}


def of_sample(machine: str, name: str, state: State) -> set[str]:
    [path] = [path for path in MIG_SAMPLES if path.stem == name]
    return kinds(offers(machine, sample(path), state))


def test_the_dynamic_sample_offers_the_whole_gpu_and_few_partitions_of_every_model_that_allows_both() -> None:
    for machine in MIG_MACHINES:
        gpu = inventory(machine, "delivered").gpus[0]
        found = of_sample(machine, "dynamic-mig", "delivered")
        assert "type == 'gpu'" in found, machine
        if gpu.mig and gpu.mig.without_reset:
            assert 3 <= len(found) - 1 <= 4, machine
        else:
            assert len(found) == 1, machine
            assert len(of_sample(machine, "dynamic-mig", "mode on")) >= 3, machine


def test_the_layout_sample_cuts_every_model() -> None:
    for machine in MIG_MACHINES:
        found = of_sample(machine, "mig-layouts", "mode on")
        assert found, machine
        assert "type == 'gpu'" not in found, machine


def test_the_static_sample_offers_whole_gpus_until_they_are_cut() -> None:
    assert of_sample("hgx-h100", "static-mig", "delivered") == {"type == 'gpu'"}
    assert of_sample("dgx-a100", "static-mig", "cut") == {
        "type == 'mig' && profile == '1g.5gb'",
        "type == 'mig' && profile == '2g.10gb'",
        "type == 'mig' && profile == '3g.20gb'",
    }
