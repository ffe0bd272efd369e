"""Metrics say what memory claims, containers and GPUs have and use; what nobody knows is left out."""

from __future__ import annotations

from dataclasses import replace

from driver.process.metrics import ClaimMemoryUse, ContainerMemoryUse, GpuMemoryUse, MemoryFigures
from kubeletplugin.journal.entry import Entry, ShareRecord
from kubeletplugin.kinds.partition.record import PartitionRecord
from kubeletplugin.reports.memory_uses import Containers, memory_uses
from tests.kubeletplugin.held import era, held_kinds, made
from tests.kubeletplugin.reports.memory_claims import DEVICE, GIB, GROUP, PCI, UUID, claim, container, share


def uses(entries: list[Entry], containers: Containers | None = ()) -> MemoryFigures:
    return memory_uses(entries, era(), held_kinds(), lambda: containers)


def test_a_claim_is_told_with_what_it_is_guaranteed_its_limit_and_what_all_of_its_containers_use() -> None:
    found = uses(
        [claim("a", share("a", 10 * GIB, 20 * GIB))],
        (container("a", 3 * GIB), container("a", GIB, "sidecar")),
    )

    assert found.claims == (
        ClaimMemoryUse("team", "a", DEVICE, "share-a", UUID, PCI, 10 * GIB, 20 * GIB, 4 * GIB),
    )
    assert found.containers == (
        ContainerMemoryUse(
            "team", "a", "pod", "main", DEVICE, "share-a", UUID, PCI, 5 * GIB, 5 * GIB, 3 * GIB
        ),
        ContainerMemoryUse(
            "team", "a", "pod", "sidecar", DEVICE, "share-a", UUID, PCI, 5 * GIB, 5 * GIB, GIB
        ),
    )


def test_a_gpu_is_told_with_what_is_allocated_on_it_against_what_is_used() -> None:
    found = uses(
        [claim("a"), claim("b", share("b", 4 * GIB))], (container("a", GIB), container("b", 2 * GIB))
    )

    assert found.gpus == (GpuMemoryUse(UUID, PCI, 14 * GIB, 3 * GIB),)


def test_a_claim_without_a_live_container_uses_nothing_and_keeps_what_is_allocated() -> None:
    found = uses([claim("a")], ())

    assert found.claims[0].used_bytes == 0
    assert found.containers == ()
    assert found.gpus == (GpuMemoryUse(UUID, PCI, 10 * GIB, 0),)


def test_while_nobody_knows_what_is_used_the_limits_are_told_and_nothing_is_invented() -> None:
    found = uses([claim("a")], None)

    assert (found.claims[0].limit_bytes, found.claims[0].used_bytes) == (10 * GIB, None)
    assert found.gpus == (GpuMemoryUse(UUID, PCI, 10 * GIB, None),)


def test_one_container_of_which_it_is_not_known_leaves_its_claim_and_its_gpu_unknown() -> None:
    containers = (container("a", GIB), container("a", None, "sidecar"), container("b", GIB))

    found = uses([claim("a"), claim("b")], containers)

    assert [one.used_bytes for one in found.claims] == [None, GIB]
    assert [one.used_bytes for one in found.containers] == [GIB, None, GIB]
    assert found.gpus[0].used_bytes is None


def test_a_container_that_is_there_twice_for_a_moment_is_one_series() -> None:
    (one,) = uses([claim("a")], (container("a", GIB), container("a", GIB, hard_bytes=GIB))).containers

    assert (one.limit_bytes, one.used_bytes) == (6 * GIB, 2 * GIB)


def test_two_shares_of_one_gpu_in_one_claim_are_told_apart() -> None:
    second = share("a", 2 * GIB, share_id="other", cdi_device="a-other")

    found = uses([claim("a", share("a"), second)])

    assert [(one.share_id, one.limit_bytes) for one in found.claims] == [
        ("share-a", 10 * GIB),
        ("other", 2 * GIB),
    ]


def test_shares_that_nobody_holds_count_as_allocated_and_what_they_use_is_not_known() -> None:
    by_memory = share("old", memory=None)
    by_number = share("number", memory=None, share=ShareRecord(GROUP, "TimeSlicing", shares=1))

    mixed = uses([claim("a"), claim("old", by_memory)])
    unknown = uses([claim("a"), claim("number", by_number)])
    none = uses([claim("old", by_memory)])

    assert mixed.gpus == (GpuMemoryUse(UUID, PCI, 20 * GIB, None),)
    assert unknown.gpus == (GpuMemoryUse(UUID, PCI, None, None),)
    assert none == MemoryFigures()


def test_shares_of_partitions_and_claims_that_are_not_prepared_in_this_boot_are_left_out() -> None:
    partition = made(PartitionRecord("1g.10gb", 19, 6, 1, True, 9, 0, "MIG-1"))
    name = f"{GROUP}-mig-1g-10gb-6-mps-2"
    others = [
        claim("a", share("a", device=name, memory=None, **partition)),
        replace(claim("b"), boot_id="another"),
        replace(claim("c"), state="releasing"),
        replace(claim("d"), rebuilt=True),
    ]

    assert uses(others, (container("d", GIB),)) == MemoryFigures()


def test_where_nobody_is_held_to_anything_nobody_looks() -> None:
    def look() -> Containers:
        raise AssertionError("it is looked at")

    unlimited = [claim("a", share("a", memory=None))]

    assert memory_uses(unlimited, era(), held_kinds(), look) == MemoryFigures()
