"""What pictures show of a node is what the scheduler gives, and what the driver taints."""

from __future__ import annotations

import pytest

from controller.intervals import Intervals
from kubeletplugin.reports.healing import gpu_reset
from tools.docs.pictures.before_and_after import arrivals, before_and_after
from tools.docs.pictures.claim_picture import STEPS, claim
from tools.docs.pictures.health_picture import CHECK_SECONDS, RESET_SECONDS, health, xid_taints
from tools.docs.pictures.node_pictures import ALL_TIERS, SceneImpossible, Wanted, claimed, published
from tools.docs.pictures.sharing_picture import division


def test_a_pod_that_gets_nothing_is_no_picture() -> None:
    slices = published("hgx-h100", ALL_TIERS, gpus=1)
    both = [Wanted("team", "train", "large"), Wanted("team", "web", "mig-small")]

    with pytest.raises(SceneImpossible, match="web gets no device of class mig-small"):
        claimed(slices, both)


def test_the_readme_shows_as_many_pods_as_really_fit() -> None:
    text = before_and_after()

    assert "8 pods run, 9 wait; 4.25 of 8 GPUs are used" in text
    assert "all 17 pods run; 1 GPU is free" in text
    assert len({one.name for one in arrivals() if f">{one.name}<" in text}) == 17


def test_shares_divide_the_memory_that_is_offered() -> None:
    pods = [Wanted("lab", "one", "shared-mps"), Wanted("lab", "two", "shared-mps", (("shares", "2"),))]

    found = division(ALL_TIERS.with_name("mps.yaml"), pods)

    assert (found.all_mib, found.offered_mib, found.free_mib) == (81559, 81105, 20277)
    assert [(one.pod, one.memory_mib, one.percentage) for one in found.shares] == [
        ("one", 20276, 25),
        ("two", 40552, 50),
    ]


def test_memory_is_rounded_up_to_the_steps_that_are_offered() -> None:
    config = ALL_TIERS.with_name("memory-shares.yaml")

    found = division(config, [Wanted("shop", "chat", "gpu.nvidia.com", (("memory", "14Gi"),))])

    assert [(one.memory_mib, one.percentage, one.taken) for one in found.shares] == [
        (16384, 20, "memory 16Gi")
    ]


def test_the_taints_of_the_sick_gpu_are_those_of_the_drivers_rules() -> None:
    assert {(one.key, one.effect) for one in xid_taints()} == {
        ("gpu.nvidia.com/xid", "NoSchedule"),
        ("gpu.nvidia.com/needs-reset", "NoExecute"),
    }
    assert (Intervals().check_seconds, gpu_reset.RESET_SECONDS) == (CHECK_SECONDS, RESET_SECONDS)
    text = health()
    for words in (
        "needs-reset=xid-48:NoExecute",
        "xid=48:NoSchedule",
        "within 20 s",
        "at most 3 minutes later",
    ):
        assert f">{words}<" in text


def test_every_step_of_a_claim_is_in_the_picture_and_in_words() -> None:
    text = claim()

    assert [number for number in STEPS if text.count(f">{number}</text>") != 2] == []
    assert [words for words in STEPS.values() if f">{words}</text>" not in text] == []
