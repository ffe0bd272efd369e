"""The sample claims are valid, and get what they say on the machines where it fits, and nothing elsewhere."""

import pytest

from tests.clusters import Object
from tests.deviceclasses.published_nodes import (
    BALANCED,
    DYNAMIC,
    MIG_MACHINES,
    OTHER_MACHINES,
    devices,
    plan,
    profile_of,
)
from tests.deviceclasses.sample_claims import results
from tests.deviceclasses.shipped_classes import SAMPLE_FILES


def given(sample: str, machine: str, configuration: str | None, **state: bool) -> list[Object] | None:
    """The devices that a sample's claim gets on an empty node, by its requests; None when it has to wait."""
    planned = plan(machine, configuration, **state)
    by_name = {device["name"]: device for device in devices(planned)}
    for found in results(next(file for file in SAMPLE_FILES if file.stem == sample), planned):
        return [by_name[result["device"]] for result in found]
    return None


PARTITIONS = {
    "a30-passthrough-guest": ("1g.6gb", "2g.12gb"),
    "a30-quad": ("1g.6gb", "2g.12gb"),
    "dgx-a100": ("1g.5gb", "2g.10gb"),
    "dgx-a100-80gb": ("1g.10gb", "2g.20gb"),
    "gb200-tray": ("1g.23gb", "2g.47gb"),
    "gh200": ("1g.12gb", "2g.24gb"),
    "hgx-b200": ("1g.23gb", "2g.45gb"),
    "hgx-h100": ("1g.10gb", "2g.20gb"),
    "hgx-h200": ("1g.18gb", "2g.35gb"),
    "rtx-pro-6000-octo": ("1g.24gb", "1g.24gb"),
}
"""Machine -> its smallest partition, and the one of medium size."""

ONE_G, MEDIUM = (
    dict(zip(PARTITIONS, profiles, strict=True)) for profiles in zip(*PARTITIONS.values(), strict=True)
)
A30 = ("a30-passthrough-guest", "a30-quad")
ONLY_80GB = {"dgx-a100-80gb", "hgx-h100"}


def twice(profiles: dict[str, str]) -> dict[str, str]:
    return {machine: f"{profile} {profile}" for machine, profile in profiles.items()}


def without(profiles: dict[str, str], *machines: str) -> dict[str, str]:
    return {machine: profile for machine, profile in profiles.items() if machine not in machines}


GIVEN: dict[str, dict[str, str]] = {
    "any-partition": ONE_G,
    "at-least": {**without(MEDIUM, *A30), "dgx-a100": "3g.20gb"},
    "by-size": MEDIUM,
    "exact-profile": dict.fromkeys(ONLY_80GB, "3g.40gb"),
    "extended-resource": dict.fromkeys(ONLY_80GB, "1g.10gb"),
    "several-in-one-pod": {machine: f"{MEDIUM[machine]} {ONE_G[machine]}" for machine in MIG_MACHINES},
    "same-parent": twice(ONE_G),
    "distinct-parents": without(twice(ONE_G), "gh200"),
    "beside-whole-gpu": {
        machine: f"whole {profile}"
        for machine, profile in without(ONE_G, "gh200", *A30, "dgx-a100", "dgx-a100-80gb").items()
    },
}
"""Sample -> machine -> the profiles that its claim gets, on a node with MIG mode on; no entry: it waits.

A GH200 has one GPU; an A100 and an A30 in MIG mode are not offered whole, since that takes a reset.
"""


def test_every_sample_is_expected_somewhere() -> None:
    assert {file.stem for file in SAMPLE_FILES} == set(GIVEN)


def served(machine: str, configuration: str) -> dict[str, str]:
    """Sample -> the profiles that its claim gets, with MIG mode on where there is one; none that waits."""
    mode_on = machine in MIG_MACHINES
    found = {sample: given(sample, machine, configuration, mode_on=mode_on) for sample in GIVEN}
    return {sample: " ".join(map(profile_of, each)) for sample, each in found.items() if each is not None}


@pytest.mark.parametrize("machine", [*MIG_MACHINES, *OTHER_MACHINES])
def test_samples_get_in_dynamic_mode_what_they_say_and_nothing_without_mig(machine: str) -> None:
    expected = {sample: on[machine] for sample, on in GIVEN.items() if machine in on}

    assert served(machine, DYNAMIC) == expected
    assert bool(expected) == (machine in MIG_MACHINES)


@pytest.mark.parametrize("machine", MIG_MACHINES)
def test_a_balanced_layout_serves_the_same_samples_but_no_whole_gpu(machine: str) -> None:
    samples = GIVEN.keys() - {"beside-whole-gpu"}

    assert served(machine, BALANCED) == {
        sample: GIVEN[sample][machine] for sample in samples if machine in GIVEN[sample]
    }


@pytest.mark.parametrize("machine", MIG_MACHINES)
def test_partitions_that_an_admin_made_serve_whoever_takes_any_and_stand_beside_no_whole_gpu(
    machine: str,
) -> None:
    found = given("any-partition", machine, None, cut=True) or []

    assert [profile_of(one).startswith("1g.") for one in found] == [True]
    assert ["-static-" in one["name"] for one in found] == [True]
    assert given("beside-whole-gpu", machine, None, cut=True) is None


@pytest.mark.parametrize("machine", MIG_MACHINES)
def test_partitions_lie_on_one_gpu_on_two_or_beside_a_whole_one_as_asked(machine: str) -> None:
    def gpus(sample: str) -> list[str]:
        found = given(sample, machine, DYNAMIC, mode_on=True) or ()
        return [one["attributes"]["resource.kubernetes.io/pciBusID"]["string"] for one in found]

    assert len(set(gpus("same-parent"))) == 1
    for sample in ("distinct-parents", "beside-whole-gpu"):
        assert len(set(gpus(sample))) == len(gpus(sample))
