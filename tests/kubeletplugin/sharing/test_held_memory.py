"""A share whose GPU was published with memory limits is prepared with them, or not at all.

The plugin may end anywhere while it prepares or takes it back.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.crashing_process import SHARE_ID
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.sharing.limiting_node import GIB, MIB, gib, hooks_of, limiting, memory_of
from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode
from tests.plugin import ClaimRef


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MemoryNode]:
    """Four L4 whose driver holds memory limits, as the controller has published them."""
    node = limiting(tmp_path)
    yield node
    node.stop()


def test_a_share_takes_few_steps_more_for_each_share_that_the_gpu_has_already(node: FakeNode) -> None:
    # Steps are calls of functions: unlike times, they are the same on a loaded machine.
    refs = [
        node.claim_shares(str(number), node.shared("ts-mem"), consumed={"memory": "512Mi"})
        for number in range(44)
    ]
    steps: list[int] = []

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        steps[-1] += event in ("call", "c_call")

    for ref in refs:
        steps.append(0)
        sys.setprofile(count)
        try:
            node.prepare(ref)
        finally:
            sys.setprofile(None)
    assert (steps[-1] - steps[3]) / (len(steps) - 4) < 30


@pytest.mark.parametrize("step", ["spec removed", "memory forgotten", "released"])
@pytest.mark.parametrize("then", ["prepare", "unprepare", "pass"])
def test_an_unprepare_that_ended_is_finished_or_the_claim_is_prepared_again(
    node: MemoryNode, step: str, then: str
) -> None:
    ref = gib(node, "a", 10)
    node.prepare(ref)
    (held,) = node.entry(ref).devices
    node.run(held.cdi_device)
    node.crash_after = step
    with pytest.raises(Crash):
        node.unprepare(ref)
    node.restart()
    if then == "prepare":
        node.prepare(ref)
        assert memory_of(node, ref) == 10 * GIB
    elif then == "pass":
        del node.api[ref.namespace, ref.name]
        node.reconciler.run_once()
    node.unprepare(ref)
    assert node.entry(ref).state == "released"
    assert node.files() == []
    node.prepared("next", 0)


@pytest.mark.parametrize(("operation", "fewest_ends"), [("prepare", 8), ("unprepare", 6)])
def test_a_real_process_may_end_before_any_change_of_the_disk(
    tmp_path: Path, crashes: Crashes, operation: str, fewest_ends: int
) -> None:
    """The kernel sees the process end between two system calls, so no cleanup of Python's runs."""

    def made(folder: Path) -> tuple[MemoryNode, ClaimRef]:
        node = limiting(folder, on_disk=True)
        device = node.shared("ts-4")
        ref = node.claim_shares("train", device, uid=UID)
        results = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
        results[0]["shareID"] = SHARE_ID
        if operation == "unprepare":
            node.prepare(ref)
            node.run(node.entry(ref).devices[0].cdi_device)
        return node, ref

    for node, ref, _ in crashes.ends(tmp_path, operation, "l4-quad", made, fewest_ends):
        node.prepare(ref)
        (held,) = node.entry(ref).devices
        assert held.memory_limit_bytes == 5641 * MIB
        assert hooks_of(node, ref) == ["gpu-memory-hook"]
        assert node.hard(node.run(held.cdi_device, "next")) <= 5641 * MIB
        node.unprepare(ref)
        assert node.files() == []
        node.prepared("next", 0)
