"""What containers use is told by claim, pod and container, and asked of NVML each time."""

from __future__ import annotations

from kubeletplugin.kubelet.wire.containers import ContainerMemory
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MemoryNode


def test_what_a_container_has_and_uses_is_told(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 4 * GIB)
    l4s.cuda(l4s.run(device, "trainer", pod="train-0")).allocate(3 * GIB)
    assert l4s.memory.used() == (
        ContainerMemory(
            "u-1",
            device,
            "team",
            "train-0",
            "trainer",
            4 * GIB,
            3 * GIB,
        ),
    )


def test_a_container_that_has_ended_is_not_told_of(l4s: MemoryNode) -> None:
    l4s.end(l4s.run(l4s.share("u-1", 4 * GIB)))
    assert l4s.memory.used() == ()


def test_each_look_asks_anew(l4s: MemoryNode) -> None:
    container = l4s.run(l4s.share("u-1", 4 * GIB))
    assert [one.used_bytes for one in l4s.memory.used()] == [0]
    l4s.cuda(container).allocate(GIB)
    assert [one.used_bytes for one in l4s.memory.used()] == [GIB]


def test_what_a_container_with_two_shares_of_a_gpu_uses_fills_one_before_the_other(l4s: MemoryNode) -> None:
    one, other = l4s.share("u-1", 4 * GIB), l4s.share("u-2", 6 * GIB)
    container = l4s.run(one)
    l4s.run(other, cgroup=container.cgroup)
    l4s.cuda(container).allocate(7 * GIB)
    assert [(each.claim_uid, each.used_bytes) for each in l4s.memory.used()] == [
        ("u-1", 4 * GIB),
        ("u-2", 3 * GIB),
    ]
