"""Metrics say what memory claims and containers have and use. Unknown values are left out."""

from __future__ import annotations

from dataclasses import replace

from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.reports.memory_watch import Containers, memory_uses
from tests.kubeletplugin.reports.memory_claims import DEVICE, GIB, PCI, UUID, claim, container, share

Told = dict[tuple[str, str, str], dict[str, float]]
"""Amounts by claim, share and container, which is empty for the claim as a whole."""


def uses(entries: list[Entry], containers: Containers | None = ()) -> Told:
    found: Told = {}
    for one in memory_uses(entries, "", lambda: containers):
        key = (one.labels["claim"], one.labels["share_id"], one.labels.get("claim_container", ""))
        amount = one.series.rpartition("_memory_")[2].removesuffix("_bytes")
        found.setdefault(key, {})[amount] = one.value
    return found


def test_a_claim_is_told_with_its_limit_and_what_all_of_its_containers_use() -> None:
    found = uses(
        [claim("a", share("a"))],
        (container("a", 3 * GIB), container("a", GIB, "sidecar")),
    )

    half = {"limit": 5 * GIB}
    assert found == {
        ("a", "share-a", ""): {"limit": 10 * GIB, "used": 4 * GIB},
        ("a", "share-a", "main"): {**half, "used": 3 * GIB},
        ("a", "share-a", "sidecar"): {**half, "used": GIB},
    }


def test_the_labels_say_whose_device_it_is_on_which_gpu_and_in_which_container() -> None:
    readings = list(memory_uses([claim("a")], "", lambda: (container("a", GIB),)))

    of_claim = {
        "claim_namespace": "team",
        "claim": "a",
        "device": DEVICE,
        "share_id": "share-a",
        "uuid": UUID,
        "pci_bus_id": PCI,
    }
    assert {tuple(one.labels.items()) for one in readings} == {
        tuple(of_claim.items()),
        (*of_claim.items(), ("claim_pod", "pod"), ("claim_container", "main")),
    }


def test_a_claim_without_a_live_container_uses_nothing_and_keeps_its_limits() -> None:
    assert uses([claim("a")], ()) == {("a", "share-a", ""): {"limit": 10 * GIB, "used": 0}}


def test_while_nobody_knows_what_is_used_the_limits_are_told_and_nothing_is_invented() -> None:
    assert uses([claim("a")], None) == {("a", "share-a", ""): {"limit": 10 * GIB}}


def test_one_container_of_which_it_is_not_known_leaves_its_claim_unknown() -> None:
    containers = (container("a", GIB), container("a", None, "sidecar"), container("b", GIB))

    found = uses([claim("a"), claim("b")], containers)

    used = {(uid, name): told.get("used") for (uid, _, name), told in found.items()}
    assert used == {
        ("a", ""): None,
        ("a", "main"): GIB,
        ("a", "sidecar"): None,
        ("b", ""): GIB,
        ("b", "main"): GIB,
    }


def test_a_container_that_is_there_twice_for_a_moment_is_one_series() -> None:
    found = uses([claim("a")], (container("a", GIB), container("a", GIB, hard_bytes=GIB)))

    assert found["a", "share-a", "main"] == {"limit": 6 * GIB, "used": 2 * GIB}


def test_two_shares_of_one_gpu_in_one_claim_are_told_apart() -> None:
    second = share("a", 2 * GIB, share_id="other", cdi_device="a-other")

    found = uses([claim("a", share("a"), second)])

    assert {key[1]: told["limit"] for key, told in found.items()} == {
        "share-a": 10 * GIB,
        "other": 2 * GIB,
    }


def test_claims_that_are_held_to_nothing_or_not_prepared_are_left_out() -> None:
    others = [
        claim("a", share("a", memory_limit_bytes=None)),
        replace(claim("c"), state="releasing"),
        replace(claim("d"), state="lost"),
    ]

    assert uses(others, (container("d", GIB),)) == {}


def test_where_nobody_is_held_to_anything_nobody_looks() -> None:
    def look() -> Containers:
        raise AssertionError("it is looked at")

    unlimited = [claim("a", share("a", memory_limit_bytes=None))]

    assert list(memory_uses(unlimited, "", look)) == []
