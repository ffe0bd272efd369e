"""A claim's fabric partition is active while the claim is held, and no two that share a GPU ever are."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpus import ClaimRefused, NoFabricManager, gpu_device_name
from tests.kubeletplugin.devices.fabric.fabric_node import (
    MACHINE,
    claim_modules,
    position,
    prepared,
)
from tests.kubeletplugin.fake_node import FakeNode


def _device(node: FakeNode, module: int) -> str:
    return gpu_device_name(node.gpus[position(node, module)])


def test_a_fabric_manager_that_starts_after_the_plugin_is_waited_for_where_one_was_published(
    tmp_path: Path,
) -> None:
    node = FakeNode(tmp_path, MACHINE)
    node.machine.fabric.stop()
    node.published_attributes[_device(node, 1)] = {"partition8": {"int": 0}}
    with pytest.raises(NoFabricManager):
        prepared(node, "train", 1)
    assert len(node.prepare(claim_modules(node, "other", 2))) == 1, "nobody ever told of a fabric"
    node.stop()


def test_a_gpu_that_the_fabric_manager_has_left_out_is_refused(node: FakeNode) -> None:
    fabric = node.machine.spec.fabric_manager
    assert fabric is not None
    left = tuple(one for one in fabric.partitions if 8 not in one)
    node.machine.spec = replace(node.machine.spec, fabric_manager=replace(fabric, partitions=left))
    node.restart()
    with pytest.raises(ClaimRefused, match="has no partition with it"):
        prepared(node, "train", 8)
