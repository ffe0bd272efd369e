"""docs/ask-for-a-gpu.md describes the tiers as the shipped classes and the published devices are."""

import re
from functools import cache

import pytest

from tests.clusters import Object
from tests.deviceclasses.published_nodes import VGPUS, devices, of_machine, plan, selectable
from tests.deviceclasses.shipped_classes import DEFAULT, ROOT, matches

Classes = tuple[str, ...]

PAGE = (ROOT / "docs" / "ask-for-a-gpu.md").read_text()
WHOLE: Classes = ("gpu.nvidia.com", "large", "medium")
ISOLATION: dict[Classes, set[str | None]] = {
    WHOLE: {"hardware", None},
    ("mig-large", "mig-medium", "mig-small"): {"hardware"},
    ("shared-mps",): {"mps"},
    ("shared-memory",): {"cgroup", "mps"},
    ("shared-timesliced",): {"none", "cgroup"},
    ("shared-mig",): {"none"},
    ("vfio.gpu.nvidia.com",): {"hardware"},
    ("vgpu.gpu.nvidia.com",): {"hardware", None},
}
"""The values of memoryIsolation that the devices of each tier have; None where a device can lack it."""

OWN_MEMORY = ("all of it", "its own, by hardware", "that of its profile")
SHARED_MEMORY = (
    "counted by the scheduler; without a driver limit, a pod can take all",
    "separate from other partitions; within one, a process can bypass the limit",
)
"""How the page promises memory that a pod has to itself, and memory that a neighbor can take."""

WITHOUT_TIER = ("mig.nvidia.com", "monitoring")
"""Classes that promise nothing: any partition, and any device to look at."""

MACHINES = ("a100-vgpu-guest", "hgx-h100", "l4-quad", "vgpu-host-l40s")
"""A guest, GPUs with MIG and without, one whose NVIDIA driver holds memory, and a host of vGPUs."""

MIG_BACKED = "vgpu-host-a100-mdev"
"""A host whose vGPUs are MIG-backed once an admin has made GPU instances."""


def rows(head: str) -> dict[Classes, str]:
    """The rows of the page's table with this head, by the classes in their first cell."""
    table = PAGE.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return {tuple(re.findall(r"`([^`]+)`", line.split("|")[1])): line for line in table}


GIVES = rows("| class | gives | needs |")
PROMISES = rows("| class | memory | compute | faults | slowed down by |")


@cache
def published() -> tuple[Object, ...]:
    """What these machines publish in all ways to offer their GPUs."""
    found = [device for machine in MACHINES for device in of_machine(machine)]
    return (*found, *devices(plan(MIG_BACKED, VGPUS, cut=True)))


def isolation_of(tier: Classes) -> set[str | None]:
    """What keeps pods apart on the devices of a tier's classes.

    A fractional GPU is left out of the whole ones: a claim for all of it shares it with nobody.
    """
    return {
        device["attributes"].get("memoryIsolation", {}).get("string")
        for device in published()
        if any(matches(name, selectable(device)) for name in tier)
        and not (tier is WHOLE and device.get("allowMultipleAllocations"))
    }


def test_every_shipped_class_is_in_one_tier_of_both_tables() -> None:
    assert sorted([*(name for tier in ISOLATION for name in tier), *WITHOUT_TIER]) == sorted(DEFAULT)
    assert [*GIVES] == [*PROMISES] == [*ISOLATION]
    assert all(f"`{name}`" in PAGE for name in WITHOUT_TIER)


@pytest.mark.parametrize("tier", ISOLATION, ids=lambda tier: tier[0])
def test_what_keeps_pods_apart_is_what_the_devices_of_its_classes_say(tier: Classes) -> None:
    assert isolation_of(tier) == ISOLATION[tier]


@pytest.mark.parametrize("tier", ISOLATION, ids=lambda tier: tier[0])
def test_memory_is_promised_as_ones_own_only_by_hardware_and_as_limited_by_somebody(tier: Classes) -> None:
    known = ISOLATION[tier] - {None}
    memory = PROMISES[tier].split("|")[2].strip()
    assert (memory in OWN_MEMORY) == (known == {"hardware"})
    assert (memory in SHARED_MEMORY) == ("none" in known)
