"""The plugin may end at any moment: a partition is then active for a claim, or let go, and never in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.devices.names import gpu_device_name
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.devices.fabric.fabric_node import (
    MACHINE,
    STEPS_OF_ACTIVATING,
    STEPS_OF_DEACTIVATING,
    claim_modules,
    connected,
    position,
    records,
)
from tests.kubeletplugin.fake_node import Crash, FakeNode


@pytest.mark.parametrize("then", ["prepare", "unprepare", "reboot and prepare"])
@pytest.mark.parametrize("step", STEPS_OF_ACTIVATING)
def test_a_partition_is_active_or_not_after_a_crash_at_any_step(node: FakeNode, step: str, then: str) -> None:
    ref = claim_modules(node, "train", 5, 6)
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)
    node.reboot() if "reboot" in then else node.restart()
    if then == "unprepare":
        node.unprepare(ref)
        assert connected(node) == ()
    else:
        node.prepare(ref)
        assert connected(node) == (5,)
        node.unprepare(ref)
    assert (connected(node), records(node)) == ((), [])
    node.prepare(claim_modules(node, "next", 5))
    assert connected(node) == (11,)


@pytest.mark.parametrize("then", ["unprepare", "prepare", "next", "keeper"])
@pytest.mark.parametrize("step", STEPS_OF_DEACTIVATING)
def test_a_partition_goes_after_a_crash_at_any_step_of_unprepare(
    node: FakeNode, step: str, then: str
) -> None:
    ref = claim_modules(node, "train", 5, 6)
    node.prepare(ref)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)
    node.restart()
    if then == "prepare":
        node.prepare(ref)
        assert connected(node) == (5,)
    if then == "keeper":
        node.fabric.run_once()
    node.unprepare(ref)
    node.prepare(claim_modules(node, "next", 6))
    assert (connected(node), records(node)) == ((12,), ["partition-12"])


@pytest.mark.parametrize("step", ["fabric deactivated", "fabric forgotten", *STEPS_OF_ACTIVATING])
def test_a_gpu_is_handed_out_without_the_partition_of_a_claim_that_has_ended(
    node: FakeNode, step: str
) -> None:
    ref = claim_modules(node, "train", 5, 6)
    node.prepare(ref)
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


@pytest.mark.parametrize(("operation", "fewest_ends"), [("prepare", 7), ("unprepare", 5)])
def test_a_real_process_may_end_before_any_change_of_the_disk(
    tmp_path: Path, crashes: Crashes, operation: str, fewest_ends: int
) -> None:
    def made(folder: Path) -> tuple[FakeNode, ClaimRef, str]:
        node = FakeNode(folder, MACHINE, on_disk=True)
        device = gpu_device_name(node.gpus[position(node, 2)])
        return node, node.claim_devices("train", device, uid=UID), device

    for node, ref, _ in crashes.ends(tmp_path, operation, MACHINE, made, fewest_ends):
        node.prepare(ref)
        assert connected(node) == (8,)
        node.unprepare(ref)
        assert (connected(node), records(node)) == ((), [])
