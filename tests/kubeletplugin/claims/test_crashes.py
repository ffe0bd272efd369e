"""The process may end at any moment: the call is replayed, and nothing is lost, doubled or left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.devices.names import gpu_device_name
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.fake_node import (
    STEPS_OF_DESTROYING,
    STEPS_OF_MAKING,
    Crash,
    FakeNode,
)


def _cut_places(node: FakeNode) -> list[tuple[int, int]]:
    """The places of all GPU instances on the first two GPUs: position of the GPU, memory slice."""
    return [
        (gpu, instance.placement.start)
        for gpu in (0, 1)
        for instance in node.machine.state.gpus[node.gpus[gpu]].mig.instances
    ]


@pytest.mark.parametrize("step", STEPS_OF_MAKING)
@pytest.mark.parametrize("then", ["prepare", "unprepare", "reboot and prepare", "reboot and unprepare"])
def test_partitions_survive_or_vanish_whole_after_any_step(node: FakeNode, step: str, then: str) -> None:
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6), node.partition(1, "3g.40gb", 4))
    node.crash_after = step
    with pytest.raises(Crash):
        node.prepare(ref)
    if "reboot" in then:
        node.reboot()
    else:
        node.restart()

    if then.endswith("unprepare"):
        node.unprepare(ref)
        assert _cut_places(node) == []
        assert not any(node.machine.state.gpus[node.gpus[gpu]].mig.enabled for gpu in (0, 1))
        node.prepare(node.claim("next", 0, 1))
    else:
        assert len(node.prepare(ref)) == 2
        assert _cut_places(node) == [(0, 6), (1, 4)]
        assert node.spec_path(ref).exists()
        node.unprepare(ref)
        assert _cut_places(node) == []


@pytest.mark.parametrize("step", STEPS_OF_DESTROYING)
@pytest.mark.parametrize("then", ["unprepare", "prepare", "finish releases"])
def test_partitions_go_after_a_crash_at_any_step_of_unprepare(node: FakeNode, step: str, then: str) -> None:
    ref = node.claim_devices("train", node.partition(0, "1g.10gb", 6), node.partition(1, "3g.40gb", 4))
    node.prepare(ref)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)
    node.restart()

    if then == "prepare":
        assert len(node.prepare(ref)) == 2
        assert _cut_places(node) == [(0, 6), (1, 4)]
    if then == "finish releases":
        node.reconciler.finish_releases()
    node.unprepare(ref)
    assert _cut_places(node) == []
    assert list(node.cdi.iterdir()) == []
    node.prepare(node.claim("next", 0, 1))


@pytest.mark.parametrize(
    ("operation", "kind", "fewest_ends"),
    [
        ("prepare", "whole", 4),
        ("unprepare", "whole", 3),
        ("prepare", "partition", 12),
        ("unprepare", "partition", 7),
    ],
)
def test_a_real_process_may_end_before_any_change_of_the_disk(
    tmp_path: Path, crashes: Crashes, operation: str, kind: str, fewest_ends: int
) -> None:
    """The kernel sees the process end between two system calls, so no cleanup of Python's runs."""
    machine = "a30-quad" if kind == "whole" else "hgx-h100"

    def made(folder: Path) -> tuple[FakeNode, ClaimRef, str]:
        node = FakeNode(folder, machine, on_disk=True)
        device = gpu_device_name(node.gpus[0]) if kind == "whole" else node.partition(0, "1g.10gb", 6)
        return node, node.claim_devices("train", device, uid=UID), device

    for node, ref, _ in crashes.ends(tmp_path, operation, machine, made, fewest_ends):
        assert len(node.prepare(ref)) == 1
        assert node.spec_path(ref).exists()
        node.unprepare(ref)
        assert list(node.cdi.glob("*.json")) == []
        assert _cut_places(node) == []
        node.prepare(node.claim("next", 0))
