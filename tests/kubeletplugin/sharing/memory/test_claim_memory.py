"""Containers of a claim never have more than the claim, whatever comes and goes."""

import pytest

from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.memory.one_gpu import containers_in_all
from tests.kubeletplugin.sharing.memory.memory_node import GIB, MemoryNode
from tests.plugin import ContainerName, PodResourcesUnavailable


def test_a_kubelet_that_is_silent_for_a_moment_is_waited_for(l4s: MemoryNode) -> None:
    """It refuses calls above its rate limit: the first container had all, and the second was refused."""
    l4s.be_patient(10.0)
    device = l4s.share("u-1", 9 * GIB)
    l4s.announce(device, "a", "b", "c")
    l4s.listing_failures = [PodResourcesUnavailable("rejected by rate limit") for _ in range(3)]

    assert l4s.hard(l4s.run(device, "a")) == 3 * GIB
    assert not l4s.listing_failures


def test_support_is_asked_once_for_each_load_of_the_driver(l4s: MemoryNode) -> None:
    limits = GpuLimits(l4s.discovery, lambda: l4s.driver_generation)
    l4s.driver_generation = "1"
    assert limits.supports(l4s.pci())
    l4s.machine.not_supported("memory_limits")
    l4s.machine.not_supported("set_memory_limits")
    assert limits.supports(l4s.pci())
    l4s.driver_generation = "2"
    assert not limits.supports(l4s.pci())


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
