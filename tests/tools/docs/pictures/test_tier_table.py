"""What the table of tiers says is what the shipped classes are and what nodes publish."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.deviceclasses.published_nodes import VGPUS, Object, devices, of_machine, plan, selectable
from tests.deviceclasses.shipped_classes import DEFAULT, expressions, matches
from tools.docs.pictures.tier_promises import PAGE, with_tables
from tools.docs.pictures.tier_table import (
    BURSTABLE,
    NO_TIERS,
    OTHERWISE,
    PARTITION,
    QUESTIONS,
    TIERS,
    WHOLE,
    Tier,
)

MACHINES = ("a100-vgpu-guest", "hgx-h100", "l4-quad", "vgpu-host-l40s")
"""A guest, GPUs with MIG and without, one whose NVIDIA driver holds memory, and a host of vGPUs."""

MIG_BACKED = "vgpu-host-a100-mdev"
"""A host whose vGPUs are MIG-backed once an admin has made GPU instances."""


@cache
def published() -> tuple[Object, ...]:
    """What these machines publish in all ways to offer their GPUs."""
    found = [device for machine in MACHINES for device in of_machine(machine)]
    return (*found, *devices(plan(MIG_BACKED, VGPUS, cut=True)))


def isolation_of(tier: Tier) -> set[str | None]:
    """What keeps pods apart on the devices of a tier's classes.

    A fractional GPU is left out of the whole ones: who asks for all of it shares it with nobody.
    """
    return {
        device["attributes"].get("memoryIsolation", {}).get("string")
        for device in published()
        if any(matches(name, selectable(device)) for name in tier.classes)
        and not (tier is WHOLE and device.get("allowMultipleAllocations"))
    }


def test_every_shipped_class_is_in_one_tier() -> None:
    named = [name for tier in TIERS for name in tier.classes]
    assert sorted([*named, *NO_TIERS]) == sorted(DEFAULT)


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.classes[0])
def test_what_keeps_pods_apart_is_what_the_devices_of_its_classes_say(tier: Tier) -> None:
    assert isolation_of(tier) == tier.isolation


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.classes[0])
def test_memory_is_ones_own_only_by_hardware_and_never_limited_by_nobody(tier: Tier) -> None:
    told = tier.isolation - {None}
    assert (tier.memory.level == "own") == (told == {"hardware"})
    assert (tier.memory.level == "shared") == ("none" in told)


def test_every_tier_but_shares_of_partitions_is_an_answer() -> None:
    answers = [tier for question in QUESTIONS for tier in question.tiers] + [OTHERWISE]
    assert [tier.classes for tier in TIERS if tier not in answers] == [("shared-mig",)]


def test_sizes_in_words_are_those_of_the_classes() -> None:
    least = {
        name: re.search(r"compareTo\(quantity\('(\d+)(Gi?)'\)\) >= 0", " ".join(expressions(DEFAULT[name])))
        for name in (*WHOLE.classes[1:], *PARTITION.classes)
    }
    sizes = {name: found and (found[1], found[2]) for name, found in least.items()}
    assert (sizes["large"], sizes["medium"]) == (("36", "G"), ("20", "G"))
    assert [sizes[f"mig-{size}"] for size in ("large", "medium", "small")] == [
        ("18", "Gi"),
        ("9", "Gi"),
        ("4", "Gi"),
    ]
    assert "of at least 36 GB, or of 20 to 36 GB" in WHOLE.gives
    assert "at least 18, 9 or 4 GiB" in PARTITION.gives


def test_a_burst_is_up_to_twice_what_was_asked_for() -> None:
    (config,) = DEFAULT["shared-burstable"]["spec"]["config"]
    assert config["opaque"]["parameters"]["memory"]["burst"] == {"factor": 2}
    assert "up to twice" in BURSTABLE.memory.words


def test_the_page_has_the_tables_as_they_are() -> None:
    assert with_tables(PAGE.read_text()) == PAGE.read_text()


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks for the table of questions"):
        with_tables("# Which tier?\n")


def test_what_stands_between_the_marks_is_replaced_and_nothing_else() -> None:
    page = PAGE.read_text()
    assert with_tables(page.replace("| `shared-mps` |", "| `shared-anything` |")) == page
