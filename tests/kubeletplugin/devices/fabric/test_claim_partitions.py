"""A claim's fabric partition is active while the claim is held, and no two that share a GPU ever are."""

from dataclasses import replace
from pathlib import Path

import pytest

from driver.devices.names import shared_device_name
from kubeletplugin.devices.fabric.matching import PartitionTaken
from tests.gpus import ClaimRefused, FabricError, NoFabricManager, SharedForm, gpu_device_name
from tests.kubeletplugin.devices.fabric.fabric_node import (
    MACHINE,
    STEPS_OF_ACTIVATING,
    claim_modules,
    connected,
    position,
    prepared,
    records,
)
from tests.kubeletplugin.fake_node import Crash, FakeNode


def test_a_repeated_prepare_activates_nothing_again(node: FakeNode) -> None:
    ref = claim_modules(node, "train", 3, 4)
    first = node.prepare(ref)
    node.machine.fabric.fail("activate")
    assert node.prepare(ref) == first
    node.restart()
    assert node.prepare(ref) == first
    assert connected(node) == (4,)


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        ((1, 3), "a part of fabric partition 1 (modules 1, 2, 3, 4): claims cannot share a partition: add"),
        ((1, 2, 3), "ask for 4 GPUs with the constraint matchAttribute: gpu.nvidia.com/partition4"),
        ((2, 8), "add the constraint matchAttribute: gpu.nvidia.com/partition2 to the claim"),
        ((1, 2, 3, 4, 5, 6), "ask for 8 GPUs with the constraint matchAttribute: gpu.nvidia.com/partition8"),
    ],
)
def test_gpus_that_are_no_partition_are_refused_with_the_constraint_to_give(
    node: FakeNode, modules: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(ClaimRefused) as caught:
        prepared(node, "train", *modules)
    assert sentence in str(caught.value)
    assert "claim team/train was given the GPUs of modules" in caught.value.what
    assert (connected(node), records(node), node.journal.entries()) == ((), [], ())


def test_what_somebody_else_has_active_is_in_the_way_and_named(node: FakeNode) -> None:
    node.machine.fabric.manager().activate(1)
    with pytest.raises(
        PartitionTaken, match=r"fabric partition 1 \(modules 1, 2, 3, 4\) is active"
    ) as caught:
        prepared(node, "train", 1, 2)
    assert "fmpm -d 1" in caught.value.way_out
    assert connected(node) == (1,)
    prepared(node, "beside", 5, 6)
    assert connected(node) == (1, 5)


def test_a_partition_that_somebody_else_has_activated_stays_active(node: FakeNode) -> None:
    node.machine.fabric.manager().activate(3)
    ref = prepared(node, "train", 1, 2)
    node.unprepare(ref)
    assert (connected(node), records(node)) == ((3,), [])


def test_shares_of_one_gpu_keep_its_partition_active_together(node: FakeNode) -> None:
    device = shared_device_name(_device(node, 1), SharedForm("TimeSlicing", 4))
    one, two = (node.claim_shares(name, device) for name in ("one", "two"))
    node.prepare(one)
    node.prepare(two)
    assert connected(node) == (7,)
    node.unprepare(one)
    assert connected(node) == (7,)
    node.unprepare(two)
    assert connected(node) == ()


def _device(node: FakeNode, module: int) -> str:
    return gpu_device_name(node.gpus[position(node, module)])


def test_partitions_of_mig_and_those_who_look_on_need_no_fabric(node: FakeNode) -> None:
    node.machine.fabric.fail("partitions")
    node.prepared_devices("cut", node.part())
    node.prepared("looks on", 1, 2, admin=True)
    assert connected(node) == ()


def test_an_unprepare_does_not_wait_for_the_fabric_manager(node: FakeNode) -> None:
    ref = prepared(node, "train", 1, 2)
    node.machine.fabric.fail("deactivate")
    assert node.unprepare(ref) is None
    assert connected(node) == (3,)

    node.fabric.run_once()
    assert connected(node) == (3,), "it still fails"
    with pytest.raises(FabricError):
        prepared(node, "next", 2)
    with pytest.raises(FabricError):
        node.prepared_devices("cut", node.partition(position(node, 1), "1g.10gb", 6))

    node.machine.fabric.heal()
    node.fabric.run_once()
    assert (connected(node), records(node)) == ((), [])


def test_a_fabric_manager_that_is_away_is_waited_for(node: FakeNode) -> None:
    prepared(node, "first", 1)
    node.machine.fabric.stop()
    with pytest.raises(NoFabricManager) as caught:
        prepared(node, "train", 3, 4)
    assert caught.value.retryable
    node.machine.fabric.start(keeps=True)
    prepared(node, "train", 3, 4)
    assert connected(node) == (4, 7)


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


def test_a_fabric_manager_that_cannot_be_reached_is_in_nobodys_way_where_none_was_seen(
    node: FakeNode,
) -> None:
    node.machine.fabric.fail("partitions", -9)
    prepared(node, "train", 1, 3)
    assert connected(node) == ()
    node.machine.fabric.heal()
    prepared(node, "next", 2)
    node.machine.fabric.fail("partitions", -9)
    with pytest.raises(NoFabricManager):
        prepared(node, "third", 4)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("by", ["keeper", "prepare"])
def test_what_claims_have_is_active_again_after_the_fabric_manager_was_started_anew(
    node: FakeNode, keeps: bool, by: str
) -> None:
    prepared(node, "train", 1, 2)
    prepared(node, "other", 5, 6, 7, 8)
    node.machine.fabric.start(keeps=keeps)
    if by == "keeper":
        node.fabric.run_once()
        assert node.machine.fabric.state.active == (2, 3)
    prepared(node, "third", 3)
    assert node.machine.fabric.state.active == connected(node) == (2, 3, 9)


def test_another_load_of_the_driver_ends_a_record(node: FakeNode) -> None:
    node.driver_generation = "load-1"
    prepared(node, "train", 1, 2, 3, 4)
    node.machine.driver_gone()
    node.machine.driver_back()
    node.machine.fabric.start(keeps=False)
    node.driver_generation = "load-2"
    node.fabric.run_once()
    assert (connected(node), records(node)) == ((), [])


def test_a_record_that_cannot_be_read_is_put_aside_and_its_partition_named(node: FakeNode) -> None:
    ref = prepared(node, "train", 1, 2)
    (node.boot_files / "fabric" / "partition-3.json").write_text("{")
    node.restart()
    node.unprepare(ref)
    with pytest.raises(PartitionTaken, match="fabric partition 3"):
        prepared(node, "next", 1)
    assert [path.name for path in (node.boot_files / "fabric").iterdir()] == ["partition-3.unreadable"]


def test_a_gpu_that_the_fabric_manager_has_left_out_is_refused(node: FakeNode) -> None:
    fabric = node.machine.spec.fabric_manager
    assert fabric is not None
    left = tuple(one for one in fabric.partitions if 8 not in one)
    node.machine.spec = replace(node.machine.spec, fabric_manager=replace(fabric, partitions=left))
    node.restart()
    with pytest.raises(ClaimRefused, match="has no partition with it"):
        prepared(node, "train", 8)


@pytest.mark.parametrize("step", ["fabric deactivated", "fabric forgotten", *STEPS_OF_ACTIVATING])
def test_a_gpu_is_handed_out_without_the_partition_of_a_claim_that_has_ended(
    node: FakeNode, step: str
) -> None:
    ref = prepared(node, "train", 5, 6)
    node.machine.fabric.stop()
    node.unprepare(ref)
    node.machine.fabric.start(keeps=True)
    assert records(node) == ["partition-5"], "the partition could not be deactivated"

    following = claim_modules(node, "next", 6)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(following)
    node.restart()

    node.prepare(following)
    assert (connected(node), records(node)) == ((12,), ["partition-12"])
