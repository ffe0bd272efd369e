"""The samples of tiers and shares are valid, get what they say where it is offered, and nothing elsewhere."""

from pathlib import Path

import pytest

from tests.clusters import PlannedNode
from tests.controller.webhook.reviewed import errors, warnings
from tests.deviceclasses.published_nodes import (
    ALL_TIERS,
    BY_MEMORY,
    FRACTIONAL,
    MIG_MACHINES,
    MPS,
    SAME_GPUS,
    SHARED_PARTITIONS,
    TIME_SLICED,
    devices,
    plan,
    profile_of,
)
from tests.deviceclasses.sample_claims import beside, results
from tests.deviceclasses.shipped_classes import ALL, ROOT, SHARED_SAMPLE_FILES, objects
from tests.deviceclasses.test_samples import A30, MEDIUM, ONE_G
from tests.deviceclasses.test_tiers import TIER
from tests.fakegpu.guests import UNLICENSED, VGPU_GUESTS
from tests.gpus import known_machines
from tools.conformance.nodes.mig_nodes import VGPU_HOSTS


def node_config(name: str) -> str:
    """A sample of a node configuration."""
    return (ROOT / "deploy" / "examples" / "node-config" / f"{name}.yaml").read_text()


FILES = {file.stem: file for file in SHARED_SAMPLE_FILES}
MACHINES = sorted(set(known_machines()) - {*SAME_GPUS, *VGPU_HOSTS})
"""Those whose GPUs containers can have; a host of vGPUs offers none of what is shared."""
GIVING = [machine for machine in MACHINES if machine not in UNLICENSED]
WITH_MPS = [machine for machine in GIVING if machine not in VGPU_GUESTS]
"""Compute modes cannot be set in a vGPU."""
SMALLER = (
    *("a30-passthrough-guest", "a30-quad", "dgx-a100", "dgx1-v100", "dgx2", "l4-quad", "l40s-octo"),
    *("passthrough-quad", "t4"),
)
"""GPUs of less than 60 GiB, which the sample of shares by memory does not offer as fractional."""
SEVERAL_GPUS = [machine for machine in GIVING if len(plan(machine).inventory.gpus) > 1]
SLICED = node_config("time-slicing")
BALANCED_PARTITION = {**ONE_G, **{machine: MEDIUM[machine] for machine in (*A30, "dgx-a100")}}
"""A partition of 1g is too small for the sample on those."""

GIVEN: dict[str, tuple[str | None, dict[str, str]]] = {
    "large": (None, {machine: "whole" for machine in GIVING if TIER[machine] == "large"}),
    "medium": (None, {machine: "whole" for machine in GIVING if TIER[machine] == "medium"}),
    "time-sliced": (SLICED, dict.fromkeys(GIVING, "time-slicing share")),
    "extended-resource": (SLICED, dict.fromkeys(GIVING, "time-slicing share")),
    "two-gpus": (SLICED, dict.fromkeys(SEVERAL_GPUS, "time-slicing share, time-slicing share")),
    "mps": (node_config("mps"), dict.fromkeys(WITH_MPS, "mps share")),
    "by-number": (node_config("mps"), dict.fromkeys(WITH_MPS, "mps share")),
    "by-memory": (node_config("memory-shares"), dict.fromkeys(SMALLER, "mps share")),
    "fraction": (node_config("memory-shares"), dict.fromkeys(set(WITH_MPS) - set(SMALLER), "whole")),
    "of-partition": (
        SHARED_PARTITIONS,
        {machine: f"mps share of {profile}" for machine, profile in BALANCED_PARTITION.items()},
    ),
    "memory-limit": (node_config("memory-limits"), {"l4-quad": "time-slicing share"}),
    "one-claim-mps": (None, dict.fromkeys(GIVING, "whole")),
    "one-claim-time-slicing": (None, dict.fromkeys(GIVING, "whole")),
    "monitoring": (
        None,
        {machine: ", ".join(["whole"] * len(plan(machine).inventory.gpus)) for machine in GIVING},
    ),
}
"""Sample -> the node configuration that it is for, and machine -> what it gets there; no entry: it waits."""


def forms(file: Path, planned: PlannedNode) -> str | None:
    """What the pod of a sample gets on an empty node, by its requests; None when it has to wait."""
    by_name = {device["name"]: device for device in devices(planned)}
    for found in results(file, planned):
        return ", ".join(profile_of(by_name[result["device"]]) for result in found)
    return None


def test_every_sample_is_expected_somewhere() -> None:
    assert set(FILES) == set(GIVEN)
    assert all(expected for _, expected in GIVEN.values())


@pytest.mark.parametrize("machine", MACHINES)
def test_samples_get_what_they_say_and_wait_where_that_is_not_offered(machine: str) -> None:
    found = {
        sample: forms(
            FILES[sample],
            plan(machine, configuration, mode_on=sample == "of-partition" and machine in MIG_MACHINES),
        )
        for sample, (configuration, _) in GIVEN.items()
    }

    assert found == {sample: expected.get(machine) for sample, (_, expected) in GIVEN.items()}


@pytest.mark.parametrize(
    ("sample", "configuration", "on_each"),
    [
        ("time-sliced", TIME_SLICED, 4),
        ("extended-resource", TIME_SLICED, 4),
        ("mps", MPS, 4),
        ("by-number", MPS, 2),
        ("by-memory", BY_MEMORY, 7),
        ("fraction", FRACTIONAL, 7),
        ("time-sliced", ALL_TIERS, 4),
        ("time-sliced", node_config("all-tiers"), 4),
        ("mps", node_config("all-tiers"), 4),
        ("by-number", node_config("all-tiers"), 2),
        ("by-memory", node_config("all-tiers"), 4),
        ("memory-limit", node_config("all-tiers"), 4),
    ],
)
def test_shares_fill_a_gpu_before_they_spill_over_to_the_next(
    sample: str, configuration: str, on_each: int
) -> None:
    given = [found[0] for found in results(FILES[sample], plan("hgx-h100", configuration), on_each + 1)]

    assert len({one["device"] for one in given[:on_each]}) == 1
    assert given[on_each]["device"] != given[0]["device"]
    assert len({one["shareID"] for one in given}) == on_each + 1


@pytest.mark.parametrize(
    ("configuration", "other", "pods"), [(None, "large", 8), (TIME_SLICED, "time-sliced", 3), (MPS, "mps", 3)]
)
def test_admins_see_the_gpus_that_others_have_and_take_nothing_of_them(
    configuration: str | None, other: str, pods: int
) -> None:
    held, watching, later = beside(
        [(FILES[other], pods), (FILES["monitoring"], 2), (FILES[other], 1)], plan("hgx-h100", configuration)
    )

    assert len(held) == pods
    assert [len(found) for found in watching] == [8, 8]
    assert len(later) == (pods != 8)
    assert all(one["adminAccess"] for found in watching for one in found)


def test_admins_need_a_share_that_is_free_and_forms_that_do_not_exclude_each_other() -> None:
    others = (FILES["time-sliced"], 32)

    assert beside([others, (FILES["monitoring"], 1)], plan("hgx-h100", TIME_SLICED))[1] == []
    assert results(FILES["monitoring"], plan("hgx-h100", ALL_TIERS)) == []


def test_the_webhook_finds_nothing_to_say_about_samples_and_classes() -> None:
    stored = [
        one for file in SHARED_SAMPLE_FILES for one in objects(file) if one["kind"].startswith("Resource")
    ]
    for one in [*stored, *ALL.values()]:
        assert (errors(one), warnings(one)) == ((), ()), one["metadata"]["name"]
