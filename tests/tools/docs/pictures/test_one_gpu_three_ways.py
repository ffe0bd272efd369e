"""One GPU held three ways: who gets what is what the scheduler gives of what the node publishes."""

from __future__ import annotations

import itertools

import pytest

from tests.gpuctl.svg.pictures import boxes, read_picture, words_of
from tools.docs.pictures.one_gpu_three_ways import WAYS, one_gpu_three_ways
from tools.docs.pictures.scene import ALL_TIERS, SceneImpossible, Wanted, claimed, published, with_xid


def test_each_pod_is_drawn_with_what_it_was_given() -> None:
    root = read_picture(one_gpu_three_ways())

    words = words_of(root)
    assert {f"pod {one.name}" for way in WAYS for one in way.wanted} <= set(words)
    assert {"the whole GPU, 79.6 GiB", "3g.40gb, 39.5 GiB", "a share of 4, 19.8 GiB"} <= set(words)
    assert [len(boxes(root, kind)) for kind in ("whole", "partition", "shared")] == [1, 3, 3]
    assert words.count("free") == 2


def test_parts_are_as_high_as_they_are_large_and_none_lies_on_another() -> None:
    root = read_picture(one_gpu_three_ways())

    (whole,) = boxes(root, "whole")
    partitions = sorted(boxes(root, "partition"), key=lambda one: one["y"])
    assert [round(one["height"] + 3) * 8 / (whole["height"] + 3) for one in partitions] == [1, 2, 4]
    for upper, lower in itertools.pairwise(partitions):
        assert upper["y"] + upper["height"] <= lower["y"]


def test_a_pod_that_gets_nothing_is_no_picture() -> None:
    slices = published("hgx-h100", ALL_TIERS, gpus=1)
    both = [Wanted("team", "train", "large"), Wanted("team", "web", "mig-small")]

    with pytest.raises(SceneImpossible, match="web gets no device of class mig-small"):
        claimed(slices, both)


def test_a_sick_gpu_is_tainted_in_all_of_its_forms_and_no_other_is() -> None:
    view = claimed(with_xid(published("hgx-h100", ALL_TIERS), 3, 79), [])

    sick = {gpu.index: {str(one.taint) for one in gpu.taints} for gpu in view.gpus if gpu.taints}
    assert sick == {3: {"gpu.nvidia.com/needs-reboot=xid-79:NoSchedule", "gpu.nvidia.com/xid=79:NoSchedule"}}
    assert all(one.devices == one.of_gpu for one in view.gpus[3].taints)
