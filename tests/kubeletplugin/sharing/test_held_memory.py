"""A share whose GPU was published with memory limits is prepared with them, or not at all.

The plugin may end anywhere while it prepares or takes it back.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.gpus import ClaimBlocked, DriverError, NodeIncomplete, NvmlError
from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.crashing_process import SHARE_ID
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.sharing.limiting_node import GIB, MIB, gib, hooks_of, limiting, memory_of, publish
from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode
from tests.plugin import ClaimRef, NotReady


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MemoryNode]:
    """Four L4 whose driver holds memory limits, as the controller has published them."""
    node = limiting(tmp_path)
    yield node
    node.stop()


def older(node: FakeNode) -> None:
    """Load a driver that knows no limits."""
    node.machine.driver_gone()
    node.machine.driver_back("580.95.05")
    node.driver_generation = "2"
    node.restart()


def test_equal_shares_are_parts_of_what_their_slice_says(node: FakeNode) -> None:
    device = node.shared("ts-4")
    node.published_memory[device] = 22000 * MIB
    for number in range(4):
        ref = node.prepared_shares(str(number), device, consumed={"shares": "1"})
        assert memory_of(node, ref) == 5500 * MIB


def test_a_driver_that_does_not_tell_what_it_keeps_has_all_memory_shared(node: FakeNode) -> None:
    for gpu in range(4):
        node.machine.not_supported("memory_use", gpu=gpu)
    ref = node.prepared_shares("a", node.shared("ts-4"), consumed={"shares": "4"})
    assert memory_of(node, ref) == 23034 * MIB


def test_it_is_in_the_entry_from_the_first_write_on(node: FakeNode) -> None:
    ref = gib(node, "a", 10)
    node.crash_after = "begun"
    with pytest.raises(Crash):
        node.prepare(ref)
    assert memory_of(node, ref) == 10 * GIB


Spoil = Callable[[MemoryNode], object]


def without_hook(node: MemoryNode) -> None:
    node.memory_hook = None
    node.restart()


REFUSALS: dict[str, tuple[Spoil, type[DriverError], str, Spoil, int | None]] = {
    "an older driver": (
        older,
        NotReady,
        "published with memory limits, but the NVIDIA driver does not enforce them",
        lambda node: publish(node, limits=False),
        None,
    ),
    "no hook": (
        without_hook,
        NodeIncomplete,
        "gpu-memory-hook",
        lambda node: publish(node, limits=False),
        None,
    ),
    "slices that were not seen": (
        lambda node: node.published_attributes.clear(),
        NotReady,
        "since its ResourceSlice was not seen yet",
        older,
        None,
    ),
    "an NVML that does not answer": (
        lambda node: node.machine.fail("memory_limits"),
        NvmlError,
        "nvml",
        lambda node: node.machine.heal(),
        10 * GIB,
    ),
}


@pytest.mark.parametrize(("spoil", "error", "why", "mend", "limit_bytes"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_held_or_is_not_known_is_refused_until_it_is(
    node: MemoryNode, spoil: Spoil, error: type[DriverError], why: str, mend: Spoil, limit_bytes: int | None
) -> None:
    spoil(node)
    ref = gib(node, "a", 10)
    with pytest.raises(error, match=why):
        node.prepare(ref)
    node.assert_holds_nothing(ref)
    node.assert_as_before()
    node.prepared("alone", 1)
    mend(node)
    node.prepare(ref)
    assert memory_of(node, ref) == limit_bytes


def test_whether_limits_are_held_is_asked_once_and_never_by_a_repeated_call(node: FakeNode) -> None:
    first, second = gib(node, "a", 10), gib(node, "b", 10)
    node.prepare(first)
    for call in ("memory_limits", "set_memory_limits"):
        node.machine.fail(call)
    node.prepare(second)
    node.machine.fail("memory_bytes")
    node.prepare(first)
    with pytest.raises(NvmlError):
        node.prepare(gib(node, "c", 1))


def test_unprepare_gives_back_what_containers_have_and_a_claim_for_a_gpu_has_nothing_to_give_back(
    node: MemoryNode,
) -> None:
    ref, alone = gib(node, "a", 10), node.claim("b", 1)
    for one in (ref, alone):
        node.prepare(one)
    (held,) = node.entry(ref).devices
    container = node.run(held.cdi_device)
    assert node.hard(container) == 10 * GIB
    assert node.files() != []
    node.steps.clear()
    node.unprepare(ref)
    assert node.steps[:2] == ["spec removed", "memory forgotten"]
    assert node.files() == []
    node.steps.clear()
    node.unprepare(alone)
    assert "memory forgotten" not in node.steps


def test_guarantees_beyond_the_gpu_wait_for_a_claim_that_leaves(node: FakeNode) -> None:
    refs = [gib(node, f"c-{number}", 10) for number in range(3)]
    for ref in refs[:2]:
        node.prepare(ref)
    with pytest.raises(ClaimBlocked):
        node.prepare(refs[2])
    node.assert_holds_nothing(refs[2])
    node.unprepare(refs[0])
    node.prepare(refs[2])


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
