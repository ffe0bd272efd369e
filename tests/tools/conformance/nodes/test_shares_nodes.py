"""What every machine publishes under every shipped configuration with shares is valid and can be had."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from driver.devices.device import Device
from kubernetes_rules.validation.dra_kinds import errors_of
from tests.fakegpu.guests import UNLICENSED, VGPU_GUESTS
from tools.conformance.allocation.area import our_answer
from tools.conformance.area import Case
from tools.conformance.nodes.mig_nodes import (
    CONTAINER_MACHINES,
    MIG_MACHINES,
    State,
    offers,
    one_rule,
    sample,
    slices,
)
from tools.conformance.nodes.shares_area import SHARING_SAMPLES, random_rule, written_cases

MOST_ENTRIES = 32


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Every question about the machines, with all of their GPUs."""
    return written_cases(gpus=None)


def of_sample(machine: str, name: str, state: State = "delivered") -> tuple[Device, ...]:
    [path] = [path for path in SHARING_SAMPLES if path.stem == name]
    return offers(machine, sample(path), state, 1).devices


def kinds(devices: tuple[Device, ...]) -> set[tuple[str, str]]:
    """The types that are offered, with how they are shared."""
    return {(str(one.attributes["type"]), str(one.attributes["sharing"])) for one in devices}


def test_every_slice_is_taken_by_the_api_server(cases: list[Case]) -> None:
    asked = [case["object"] for case in cases if case["op"] == "validate"]

    assert [error for one in asked for error in errors_of(one)] == []
    assert len(asked) >= 150
    assert any("sharedCounters" in one["spec"] for one in asked)


def test_every_kind_of_device_is_allocated_in_every_way_to_ask_for_it(cases: list[Case]) -> None:
    asked = [case for case in cases if case["op"] == "allocate" and case["name"].split()[0] not in UNLICENSED]

    assert [case["name"] for case in asked if "results" not in our_answer(case)] == []
    assert len(asked) >= 300


@pytest.mark.parametrize("machine", CONTAINER_MACHINES)
@pytest.mark.parametrize("path", SHARING_SAMPLES, ids=lambda path: path.stem)
def test_every_gpu_is_offered_under_every_sample(machine: str, path: Path) -> None:
    offered = offers(machine, sample(path), "delivered")

    assert [held for held in offered.withheld if held.part != "partitions"] == []
    assert all(len(one.attributes) + len(one.capacity) <= MOST_ENTRIES for one in offered.devices)


@pytest.mark.parametrize("machine", sorted(set(CONTAINER_MACHINES) - VGPU_GUESTS))
def test_all_tiers_are_offered_of_every_gpu_at_once(machine: str) -> None:
    found = kinds(of_sample(machine, "all-tiers"))

    assert {("gpu", "none"), ("shared", "time-slicing"), ("shared", "mps")} <= found
    in_partitions = kinds(of_sample(machine, "all-tiers", "mode on")) if machine in MIG_MACHINES else set()
    assert (("mig", "none") in in_partitions) == (machine in MIG_MACHINES)


@pytest.mark.parametrize("machine", sorted(VGPU_GUESTS))
def test_samples_share_the_gpus_of_a_guest_without_mps(machine: str) -> None:
    for path in SHARING_SAMPLES:
        found = kinds(of_sample(machine, path.stem))
        assert ("shared", "time-slicing") in found, path.stem
        assert not {kind for kind in found if kind[1] == "mps"}, path.stem


def test_whatever_is_shared_is_taken_by_the_api_server() -> None:
    chance = Random("shares 2")  # noqa: S311 - no secret
    for _ in range(60):
        rule = random_rule(chance)
        offered = offers(chance.choice(CONTAINER_MACHINES), one_rule(rule), "delivered", 1)
        assert [error for one in slices(offered) for error in errors_of(one)] == [], rule
