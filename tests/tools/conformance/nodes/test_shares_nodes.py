"""Every GPU is offered in all tiers at once, and whatever is shared is valid."""

from random import Random

import pytest

from tests.clusters import errors_of
from tests.fakegpu.guests import VGPU_GUESTS
from tests.gpus import Device
from tools.conformance.nodes.mig_nodes import (
    CONTAINER_MACHINES,
    MIG_MACHINES,
    State,
    offers,
    one_rule,
    sample,
    slices,
)
from tools.conformance.nodes.shares_area import SHARING_SAMPLES, random_rule


def of_sample(machine: str, name: str, state: State = "delivered") -> tuple[Device, ...]:
    [path] = [path for path in SHARING_SAMPLES if path.stem == name]
    return offers(machine, sample(path), state, 1).devices


def kinds(devices: tuple[Device, ...]) -> set[tuple[str, str]]:
    """The types that are offered, with how they are shared."""
    return {(str(one.attributes["type"]), str(one.attributes["sharing"])) for one in devices}


@pytest.mark.parametrize("machine", sorted(set(CONTAINER_MACHINES) - VGPU_GUESTS))
def test_all_tiers_are_offered_of_every_gpu_at_once(machine: str) -> None:
    found = kinds(of_sample(machine, "all-tiers"))

    assert {("gpu", "none"), ("shared", "time-slicing"), ("shared", "mps")} <= found
    in_partitions = kinds(of_sample(machine, "all-tiers", "mode on")) if machine in MIG_MACHINES else set()
    assert (("mig", "none") in in_partitions) == (machine in MIG_MACHINES)


def test_whatever_is_shared_is_taken_by_the_api_server() -> None:
    chance = Random("shares 2")  # noqa: S311 - no secret
    for _ in range(60):
        rule = random_rule(chance)
        offered = offers(chance.choice(CONTAINER_MACHINES), one_rule(rule), "delivered", 1)
        assert [error for one in slices(offered) for error in errors_of(one)] == [], rule
