"""How many containers a claim's memory is divided among."""

from __future__ import annotations

import pytest

from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.sharing.memory.one_gpu import containers_in_all


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
