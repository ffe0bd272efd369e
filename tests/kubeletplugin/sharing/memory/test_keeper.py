"""A pass divides what claims have as things are then, and leaves nothing of containers that have ended."""

from __future__ import annotations

import pytest

from driver.errors import ClaimBlocked
from kubeletplugin.claims.journal.locks import KeyedLocks
from kubeletplugin.sharing.memory.claim_memory import memory_key
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MemoryNode


def test_nothing_is_divided_anew_while_the_kubelet_does_not_answer(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    l4s.announce(device, "a", "b")
    first = l4s.run(device, "a")
    l4s.listed_containers = ClaimBlocked("the kubelet is away")
    l4s.memory.run_once()
    assert l4s.hard(first) == 4 * GIB


def test_a_gpu_that_another_instance_works_on_is_no_fault(
    l4s: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletplugin.sharing.memory.claim_memory._LOCK_SECONDS", 0.1)
    device = l4s.share("u-1", 8 * GIB)
    container = l4s.run(device)
    with KeyedLocks(l4s.folder / "locks").holding([memory_key(l4s.pci())], 1):
        l4s.memory.run_once()
    assert l4s.memory.faults() == {}
    assert l4s.hard(container) == 8 * GIB


def test_a_claim_that_is_gone_leaves_no_file_though_nobody_forgot_it(l4s: MemoryNode) -> None:
    container = l4s.run(l4s.share("u-1", 8 * GIB))
    l4s.journal.forget("u-1")
    l4s.memory.run_once()
    assert l4s.hard(container) == 8 * GIB, "while it is there it stays limited"
    l4s.end(container)
    l4s.memory.run_once()
    assert l4s.files() == []


def test_a_node_without_limited_containers_asks_nobody(l4s: MemoryNode) -> None:
    def refuse() -> None:
        raise AssertionError("NVML is asked")

    l4s.meddle = refuse
    l4s.listed_containers = AssertionError("the kubelet is asked")  # type: ignore[assignment]
    l4s.memory.run_once()
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()


def test_the_driver_is_asked_about_only_while_a_container_has_a_limit(l4s: MemoryNode) -> None:
    """It is looked at once a second, for as long as the node runs."""
    l4s.memory.run_once()
    l4s.driver_generation = "2"
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()

    container = l4s.run(l4s.share("u-1", 8 * GIB))
    l4s.driver_generation = "3"
    l4s.memory.check_driver()
    assert l4s.memory.wanted.is_set()

    l4s.memory.wanted.clear()
    l4s.end(container)
    for _ in range(2):
        l4s.memory.run_once()
    l4s.driver_generation = "4"
    l4s.memory.check_driver()
    assert not l4s.memory.wanted.is_set()
