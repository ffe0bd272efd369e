"""A claim may have more than it is guaranteed while no other claim is guaranteed that, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.errors import ClaimBlocked
from driver.nvml.memory_limits import MemoryLimits
from tests.kubeletplugin.sharing.memory.memory_node import GIB, L4_BYTES, MIB, MemoryNode


def test_a_claim_alone_has_as_much_as_its_class_lets_it(l4s: MemoryNode) -> None:
    assert l4s.hard(l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB))) == 20 * GIB
    assert l4s.hard(l4s.run(l4s.share("u-2", 5 * GIB, L4_BYTES, gpu=1)), gpu=1) == L4_BYTES


def test_containers_divide_a_burst_as_they_divide_what_is_guaranteed(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 4 * GIB, 12 * GIB, parts={"large": 3 * GIB})
    l4s.announce(device, "large", "small")
    assert [l4s.hard(l4s.run(device, name)) for name in ("large", "small")] == [9 * GIB, 3 * GIB]


def test_with_mps_what_is_guaranteed_is_the_soft_limit(l4s: MemoryNode) -> None:
    container = l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB, mps=True))
    assert l4s.limits(container) == MemoryLimits(5 * GIB, 20 * GIB)


def test_a_burst_comes_down_before_another_claims_container_starts(l4s: MemoryNode) -> None:
    burst = l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB))
    l4s.cuda(burst).allocate(6 * GIB)
    newcomer = l4s.run(l4s.share("u-2", 10 * GIB))
    assert l4s.hard(newcomer) == 10 * GIB
    assert l4s.hard(burst) == L4_BYTES - 10 * GIB
    l4s.cuda(newcomer).allocate(10 * GIB)


def test_a_burst_comes_down_as_soon_as_another_claim_is_prepared(l4s: MemoryNode) -> None:
    burst = l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB))
    assert not l4s.memory.wanted.is_set()
    l4s.share("u-2", 10 * GIB)
    assert l4s.memory.wanted.is_set(), "else the pass would come 15 s later"
    l4s.memory.run_once()
    assert l4s.hard(burst) == L4_BYTES - 10 * GIB


def test_a_burst_that_is_in_use_keeps_a_claim_from_its_guarantee_until_it_is_freed(l4s: MemoryNode) -> None:
    burst = l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB))
    program = l4s.cuda(burst)
    program.allocate(18 * GIB)
    device = l4s.share("u-2", 10 * GIB)
    with pytest.raises(ClaimBlocked, match=f"{(L4_BYTES - 18 * GIB) // MIB} MiB are free"):
        l4s.run(device)
    assert l4s.hard(burst) == 18 * GIB, "it must not grow meanwhile"
    program.free(8 * GIB)
    assert l4s.hard(l4s.run(device)) == 10 * GIB
    assert l4s.hard(burst) == L4_BYTES - 10 * GIB


def test_what_is_free_is_divided_among_those_that_burst(l4s: MemoryNode) -> None:
    one = l4s.run(l4s.share("u-1", 4 * GIB, L4_BYTES))
    other = l4s.run(l4s.share("u-2", 4 * GIB, 6 * GIB))
    l4s.memory.run_once()
    assert (l4s.hard(one), l4s.hard(other)) == (L4_BYTES - 6 * GIB, 6 * GIB), "one leaves what other wants"
    third = l4s.run(l4s.share("u-3", 4 * GIB, L4_BYTES))
    free_bytes = L4_BYTES - 12 * GIB
    each_bytes = 4 * GIB + (free_bytes - 2 * GIB) // 2 // MIB * MIB
    assert (l4s.hard(one), l4s.hard(other), l4s.hard(third)) == (each_bytes, 6 * GIB, each_bytes)


def test_a_burst_grows_again_once_the_other_claim_has_gone(l4s: MemoryNode) -> None:
    burst = l4s.run(l4s.share("u-1", 5 * GIB, 20 * GIB))
    other = l4s.run(l4s.share("u-2", 10 * GIB))
    l4s.end(other)
    l4s.memory.run_once()
    assert l4s.hard(burst) == L4_BYTES - 10 * GIB, "its claim is still guaranteed that"
    l4s.release("u-2")
    l4s.memory.run_once()
    assert l4s.hard(burst) == 20 * GIB


def test_a_claim_whose_memory_nobody_knows_lets_none_burst(l4s: MemoryNode) -> None:
    burst = l4s.share("u-1", 5 * GIB, 20 * GIB)
    l4s.hold("u-2", replace(l4s.held("u-2", 0), memory=None))
    assert l4s.hard(l4s.run(burst)) == 5 * GIB


def test_a_claim_without_limits_keeps_what_its_share_says(l4s: MemoryNode) -> None:
    burst = l4s.share("u-1", 5 * GIB, 20 * GIB)
    l4s.hold("u-2", replace(l4s.held("u-2", 10 * GIB), memory=None))
    assert l4s.hard(l4s.run(burst)) == L4_BYTES - 10 * GIB


def test_a_new_container_of_a_bursting_claim_gets_at_least_what_it_is_guaranteed(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB, 16 * GIB)
    first = l4s.run(device, "a")
    l4s.cuda(first).allocate(11 * GIB)
    second = l4s.run(device, "b")
    assert (l4s.hard(first), l4s.hard(second)) == (11 * GIB, 5 * GIB)
    third = l4s.container(device, "c")
    with pytest.raises(ClaimBlocked, match="needs 2730 MiB of the 8192 MiB"):
        l4s.start(third)
