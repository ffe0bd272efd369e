"""Islands and peers from NVLinks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.hardware.gpu import NvLink
from driver.hardware.topology import nvlink_islands, nvlink_meshes, nvlink_peers, nvlink_widths
from tests.gpus import Gpu, PciAddress, known_machines
from tools.conformance.nodes.mig_nodes import inventory


def _pci(number: int) -> PciAddress:
    return PciAddress(0, number, 0, 0)


def _gpu(number: int, *peers: int, switch_links: int = 0, clique: str | None = None) -> Gpu:
    links = tuple(NvLink(_pci(peer), 4) for peer in peers)
    return Gpu(_pci(number), f"GPU-{number}", 9 - number, number,
               links=links, switch_links=switch_links, fabric_clique=clique)  # fmt: skip


def test_bridged_pairs_are_islands_of_two() -> None:
    gpus = [_gpu(0, 1), _gpu(1, 0), _gpu(2, 3), _gpu(3, 2)]
    assert list(nvlink_islands(gpus).values()) == [
        "nvlink-0000-00-00-0", "nvlink-0000-00-00-0", "nvlink-0000-02-00-0", "nvlink-0000-02-00-0",
    ]  # fmt: skip
    assert nvlink_peers(gpus) == {_pci(0): (1,), _pci(1): (0,), _pci(2): (3,), _pci(3): (2,)}


def test_a_link_that_only_one_end_tells_counts_for_both() -> None:
    gpus = [_gpu(0, 1), _gpu(1)]
    assert nvlink_peers(gpus) == {_pci(0): (1,), _pci(1): (0,)}


def test_gpus_of_different_fabric_cliques_are_not_connected() -> None:
    gpus = [_gpu(number, switch_links=18, clique=f"c.{number // 2}") for number in range(4)]
    assert nvlink_peers(gpus) == {_pci(0): (1,), _pci(1): (0,), _pci(2): (3,), _pci(3): (2,)}
    assert len(set(nvlink_islands(gpus).values())) == 2


def test_of_equally_large_meshes_the_one_with_more_links_is_made() -> None:
    wide = NvLink(_pci(2), 8)
    first = replace(_gpu(0, 1), links=(NvLink(_pci(1), 1), wide))
    meshes = nvlink_meshes([first, _gpu(1), _gpu(2)])
    assert meshes[_pci(0)] == meshes[_pci(2)] != meshes[_pci(1)]


def test_a_gpu_whose_clique_was_never_told_is_with_the_others_unless_they_differ() -> None:
    unanswered = replace(_gpu(0, switch_links=18), unanswered=frozenset({"fabric"}))
    alike = [_gpu(number, switch_links=18, clique="c.1") for number in (1, 2)]
    other = _gpu(3, switch_links=18, clique="c.2")
    assert nvlink_peers([unanswered, *alike])[_pci(0)] == (1, 2)
    assert nvlink_peers([unanswered, *alike, other])[_pci(0)] == ()


def _linked(links: set[tuple[int, int]]) -> list[Gpu]:
    return [_gpu(number, *(other for one, other in links if one == number)) for number in range(16)]


pairs = st.sets(st.tuples(st.integers(0, 15), st.integers(0, 15)).filter(lambda pair: pair[0] != pair[1]))


@given(pairs)
def test_peers_are_mutual_and_share_an_island(links: set[tuple[int, int]]) -> None:
    gpus = _linked(links)
    islands, peers = nvlink_islands(gpus), nvlink_peers(gpus)
    assert set(islands) == set(peers)
    for one, others in peers.items():
        for other in others:
            assert one.bus in peers[_pci(other)]
            assert islands[one] == islands[_pci(other)]


@given(pairs)
def test_everybody_in_a_mesh_has_links_to_everybody_else(links: set[tuple[int, int]]) -> None:
    gpus = _linked(links)
    meshes, peers = nvlink_meshes(gpus), nvlink_peers(gpus)
    assert set(meshes) == set(peers)
    for one, other in combinations(meshes, 2):
        assert meshes[one] != meshes[other] or other.bus in peers[one]


@given(pairs, st.permutations(range(16)))
def test_ids_do_not_depend_on_the_order_of_the_gpus(links: set[tuple[int, int]], order: list[int]) -> None:
    gpus = _linked(links)
    assert nvlink_islands(gpus) == nvlink_islands([gpus[number] for number in order])


def test_links_are_counted_for_each_peer_and_through_switches_the_fewer_count() -> None:
    pairs = [_gpu(0, 1), _gpu(1), _gpu(2)]
    switched = [_gpu(0, switch_links=18), _gpu(1, switch_links=17), _gpu(2, switch_links=18)]

    assert nvlink_widths(pairs) == {_pci(0): (4,), _pci(1): (4,)}
    assert nvlink_widths(switched)[_pci(0)] == (17, 18)
    assert nvlink_widths(switched)[_pci(1)] == (17, 17)


PAGE = Path(__file__).resolve().parents[3] / "docs" / "topology.md"
LOOK_ON = {
    *("a100-vgpu-guest", "a100-vgpu-guest-quad", "a30-passthrough-guest", "a30-vgpu-guest"),
    *("l40s-vgpu-unlicensed", "passthrough-quad", "vgpu-and-passthrough", "vgpu-host-a100-mdev"),
    "vgpu-host-l40s",
}
"""Guests and hosts of virtual machines: no links reach into those, and none are shown of these."""

Sizes = tuple[list[int], list[int]]


def documented() -> dict[str, Sizes]:
    """The sizes of islands and meshes by machine, as the page's table has them."""
    found: dict[str, Sizes] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and set(cells[0].split(", ")) & set(known_machines()):
            islands, meshes = (sorted(map(int, cell.split(" + "))) if cell else [] for cell in cells[2:])
            found |= dict.fromkeys(cells[0].split(", "), (islands, meshes))
    return found


def sizes(groups: Callable[[Iterable[Gpu]], Mapping[PciAddress, str]], gpus: Iterable[Gpu]) -> list[int]:
    return sorted(Counter(groups(gpus).values()).values())


def test_the_page_has_each_machine_with_gpus_of_its_own() -> None:
    assert documented().keys() == set(known_machines()) - LOOK_ON


@pytest.mark.parametrize("machine", sorted(known_machines()))
def test_islands_and_meshes_are_as_the_page_says(machine: str) -> None:
    gpus = inventory(machine, "delivered").gpus

    assert (sizes(nvlink_islands, gpus), sizes(nvlink_meshes, gpus)) == documented().get(machine, ([], []))
