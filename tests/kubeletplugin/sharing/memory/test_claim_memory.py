"""Containers of a claim never have more than the claim, whatever comes and goes."""

from dataclasses import replace

import pytest

from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.memory.one_gpu import containers_in_all
from tests.gpus import ClaimBlocked, ClaimRefused, MemoryLimits
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MIB, MemoryNode
from tests.plugin import ContainerMemory, ContainerName, PodResourcesUnavailable


@pytest.mark.parametrize("mps", [False, True])
def test_no_share_has_a_soft_limit(l4s: MemoryNode, mps: bool) -> None:
    """It would stay counted in the groups above the container's for ever."""
    assert l4s.limits(l4s.run(l4s.share("u-1", 4 * GIB, mps=mps))) == MemoryLimits(0, 4 * GIB)


def test_a_container_that_nobody_announced_makes_the_others_come_down_first(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 9 * GIB)
    first = l4s.run(device, "a")
    assert l4s.hard(first) == 9 * GIB
    second = l4s.run(device, "b")
    assert (l4s.hard(first), l4s.hard(second)) == (9 * GIB // 2, 9 * GIB // 2)


def test_what_a_container_uses_is_never_taken_from_it(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    first = l4s.run(device, "a")
    l4s.cuda(first).allocate(5 * GIB)
    with pytest.raises(ClaimBlocked, match="needs 4096 MiB of the 8192 MiB") as refused:
        l4s.run(device, "b")
    assert "1 other containers use or may use 5120 MiB" in str(refused.value)
    assert l4s.hard(first) == 5 * GIB, "else it would take what the next one is refused for"


def test_a_container_that_starts_again_has_its_part_though_its_old_group_lingers(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    l4s.announce(device, "main")
    first = l4s.run(device)
    second = l4s.run(device)
    assert (l4s.hard(first), l4s.hard(second)) == (0, 8 * GIB)


def test_parts_are_whole_mib_rounded_down(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 10 * GIB)
    l4s.announce(device, "a", "b", "c")
    assert l4s.hard(l4s.run(device, "a")) == 10 * GIB // 3 // MIB * MIB


def test_a_limit_is_not_raised_while_its_container_runs(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    first, second = l4s.run(device, "a"), l4s.run(device, "b")
    l4s.end(second)
    l4s.memory.run_once()
    assert l4s.hard(first) == 4 * GIB
    l4s.end(first)
    assert l4s.hard(l4s.run(device, "a")) == 8 * GIB, "it starts again"


def test_the_requests_of_a_claim_are_taken_to_be_used_by_as_many_containers_each(l4s: MemoryNode) -> None:
    one, other = l4s.hold(
        "u-1", l4s.held("u-1", 8 * GIB, request="one"), l4s.held("u-1", 8 * GIB, gpu=1, request="other")
    )
    for device in (one, other):
        l4s.announce(device, "a", "b")  # the kubelet lists all devices of the claim for both
    first, second = l4s.run(one, "a"), l4s.run(other, "b")
    assert (l4s.hard(first), l4s.hard(second, gpu=1)) == (8 * GIB, 8 * GIB)


def test_shares_of_two_claims_in_one_container_add_up_on_a_gpu(l4s: MemoryNode) -> None:
    one, other = l4s.share("u-1", 4 * GIB), l4s.share("u-2", 6 * GIB)
    container = l4s.run(one)
    again = l4s.run(other, cgroup=container.cgroup)
    assert l4s.hard(container) == l4s.hard(again) == 10 * GIB
    l4s.release("u-2")
    assert l4s.hard(container) == 4 * GIB


def test_a_claim_that_is_not_prepared_lets_no_container_start(l4s: MemoryNode) -> None:
    container = l4s.container("u-1-gpu-0")
    with pytest.raises(ClaimRefused, match="is not prepared on this node"):
        l4s.start(container)
    device = l4s.share("u-2", 8 * GIB)
    l4s.release("u-2")
    with pytest.raises(ClaimRefused, match="is not prepared on this node"):
        l4s.run(device)
    assert l4s.files() == []


def test_a_claim_of_an_earlier_load_of_the_driver_lets_no_container_start(l4s: MemoryNode) -> None:
    l4s.driver_generation = "1"
    device = l4s.share("u-1", 8 * GIB)
    l4s.driver_generation = "2"
    with pytest.raises(ClaimRefused, match="reloaded"):
        l4s.run(device)


def test_a_lost_claim_lets_no_container_start(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    entry = l4s.journal.get("u-1")
    assert entry is not None
    devices = tuple(replace(held, share=None, memory_limit_bytes=None) for held in entry.devices)
    l4s.journal.put(replace(entry, namespace="", name="", devices=devices, state="lost"))
    with pytest.raises(ClaimRefused, match=f"claim UID u-1 has no device {device} with a memory limit"):
        l4s.run(device)


def test_less_than_a_program_needs_is_refused_for_good(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 511 * MIB)
    with pytest.raises(ClaimRefused, match="a program needs 512 MiB to start"):
        l4s.run(device)
    assert l4s.files() == []


def test_too_many_containers_for_a_claim_are_refused_and_the_others_keep_what_they_have(
    l4s: MemoryNode,
) -> None:
    device = l4s.share("u-1", 1 * GIB)
    running = [l4s.run(device, name) for name in "ab"]
    with pytest.raises(ClaimRefused, match="or use the claim in fewer containers"):
        l4s.run(device, "c")
    assert [l4s.hard(container) for container in running] == [512 * MIB] * 2


def test_a_kubelet_that_does_not_answer_keeps_nobody_from_starting(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    l4s.listed_containers = ClaimBlocked("the kubelet is away")
    assert l4s.hard(l4s.run(device)) == 8 * GIB


def test_a_kubelet_that_is_silent_for_a_moment_is_waited_for(l4s: MemoryNode) -> None:
    """It refuses calls above its rate limit: the first container had all, and the second was refused."""
    l4s.be_patient(10.0)
    device = l4s.share("u-1", 9 * GIB)
    l4s.announce(device, "a", "b", "c")
    l4s.listing_failures = [PodResourcesUnavailable("rejected by rate limit") for _ in range(3)]

    assert l4s.hard(l4s.run(device, "a")) == 3 * GIB
    assert not l4s.listing_failures


def test_unprepare_leaves_nothing_and_a_container_that_outlives_it_stays_limited(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 8 * GIB)
    container = l4s.run(device)
    l4s.release("u-1")
    assert l4s.files() == []
    assert l4s.hard(container) == 8 * GIB


def test_unprepare_needs_no_nvml(l4s: MemoryNode) -> None:
    l4s.run(l4s.share("u-1", 8 * GIB, mps=True))
    l4s.machine.fail(gpu=0)
    l4s.release("u-1")
    assert l4s.files() == []


def test_support_is_asked_once_for_each_load_of_the_driver(l4s: MemoryNode) -> None:
    limits = GpuLimits(l4s.discovery, lambda: l4s.driver_generation)
    l4s.driver_generation = "1"
    assert limits.supports(l4s.pci())
    l4s.machine.not_supported("memory_limits")
    l4s.machine.not_supported("set_memory_limits")
    assert limits.supports(l4s.pci())
    l4s.driver_generation = "2"
    assert not limits.supports(l4s.pci())


def test_what_a_container_has_and_uses_is_told_until_it_ends(l4s: MemoryNode) -> None:
    device = l4s.share("u-1", 4 * GIB)
    container = l4s.run(device, "trainer", pod="train-0")
    l4s.cuda(container).allocate(3 * GIB)
    told = ContainerMemory("u-1", device, "team", "train-0", "trainer", 4 * GIB, 3 * GIB)
    assert l4s.memory.used() == (told,)
    l4s.end(container)
    assert l4s.memory.used() == ()


def test_what_a_container_with_two_shares_of_a_gpu_uses_fills_one_before_the_other(l4s: MemoryNode) -> None:
    one, other = l4s.share("u-1", 4 * GIB), l4s.share("u-2", 6 * GIB)
    container = l4s.run(one)
    l4s.run(other, cgroup=container.cgroup)
    l4s.cuda(container).allocate(7 * GIB)
    assert [(each.claim_uid, each.used_bytes) for each in l4s.memory.used()] == [
        ("u-1", 4 * GIB),
        ("u-2", 3 * GIB),
    ]


def name(container: str) -> ContainerName:
    """A container of pod ``pod``, or of the one in ``pod/container``."""
    pod, _, container = container.rpartition("/")
    return ContainerName("team", pod or "pod", container) if container else ContainerName("", "", "")


@pytest.mark.parametrize(
    ("listed", "present", "requests", "number"),
    [
        ((), ("a",), 1, 1),
        (("a", "b"), ("a",), 1, 2),
        (("a", "b"), ("b", "a"), 1, 2),
        # An init container, the last of those present, waits for nobody of its pod.
        (("a", "other/b"), ("init",), 1, 2),
        # A container without a name waits for all that are listed.
        (("a",), ("",), 1, 2),
        # Each request is used by as many containers as any other.
        (("a", "b", "c"), ("a",), 3, 1),
        (("a", "b", "c"), ("a",), 2, 2),
        (("a", "b", "c"), ("a", "b", "c"), 2, 3),
    ],
)
def test_containers_that_will_start_count(
    listed: tuple[str, ...], present: tuple[str, ...], requests: int, number: int
) -> None:
    newcomer = name(present[-1])
    assert (
        containers_in_all(frozenset(map(name, listed)), list(map(name, present)), requests, newcomer)
        == number
    )
