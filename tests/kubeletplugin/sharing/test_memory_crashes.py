"""The plugin may end anywhere while it prepares or takes back a share whose memory is held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from tests.kubeletplugin.crashes import UID, Crashes
from tests.kubeletplugin.crashing_process import SHARE_ID
from tests.kubeletplugin.fake_node import Crash, FakeNode
from tests.kubeletplugin.share_node import entry_of, shared
from tests.kubeletplugin.sharing.limiting_node import GIB, MIB, gib, hooks_of, limiting, memory_of
from tests.kubeletplugin.sharing.memory.memory_node import MemoryNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MemoryNode]:
    """Four L4 whose driver holds memory limits, as the controller has published them."""
    node = limiting(tmp_path)
    yield node
    node.stop()


@pytest.mark.parametrize("form", ["ts-mem", "mps-mem"])
@pytest.mark.parametrize("step", ["begun", "sharing noted", "committed", "metadata written", "spec written"])
@pytest.mark.parametrize("then", ["prepare", "unprepare"])
def test_a_prepare_that_ended_is_finished_or_taken_back(
    node: FakeNode, form: str, step: str, then: str
) -> None:
    ref = node.claim_shares("a", shared(node, form), consumed={"memory": "10Gi"})
    node.crash_after = step
    try:
        node.prepare(ref)
    except Crash:
        node.restart()
    if then == "prepare":
        node.prepare(ref)
        assert memory_of(node, ref) == 10 * GIB
    node.unprepare(ref)
    assert entry_of(node, ref).state == "released"
    node.prepare(node.claim("next", 0))


@pytest.mark.parametrize("step", ["spec removed", "memory forgotten", "released"])
@pytest.mark.parametrize("then", ["prepare", "unprepare", "pass"])
def test_an_unprepare_that_ended_is_finished_or_the_claim_is_prepared_again(
    node: MemoryNode, step: str, then: str
) -> None:
    ref = gib(node, "a", 10)
    node.prepare(ref)
    (held,) = entry_of(node, ref).devices
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
    assert entry_of(node, ref).state == "released"
    assert node.files() == []
    node.prepare(node.claim("next", 0))


@pytest.mark.parametrize(("operation", "fewest_ends"), [("prepare", 8), ("unprepare", 6)])
def test_a_real_process_may_end_before_any_change_of_the_disk(
    tmp_path: Path, crashes: Crashes, operation: str, fewest_ends: int
) -> None:
    """The kernel sees the process end between two system calls, so no cleanup of Python's runs."""

    def made(folder: Path) -> tuple[MemoryNode, ClaimRef, str]:
        node = limiting(folder, on_disk=True)
        device = shared(node, "ts-4")
        ref = node.claim_shares("train", device, uid=UID)
        results = node.api[ref.namespace, ref.name]["status"]["allocation"]["devices"]["results"]
        results[0]["shareID"] = SHARE_ID
        if operation == "unprepare":
            node.prepare(ref)
            node.run(entry_of(node, ref).devices[0].cdi_device)
        return node, ref, device

    for node, ref, _ in crashes.ends(tmp_path, operation, "l4-quad", made, fewest_ends):
        node.prepare(ref)
        (held,) = entry_of(node, ref).devices
        assert held.memory_limit_bytes == 5641 * MIB
        assert hooks_of(node, ref) == ["gpu-memory-hook"]
        assert node.hard(node.run(held.cdi_device, "next")) <= 5641 * MIB
        node.unprepare(ref)
        assert node.files() == []
        node.prepare(node.claim("next", 0))
