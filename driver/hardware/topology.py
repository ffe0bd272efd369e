"""Finds out from the NVLinks of a node's GPUs which GPUs form an island or a mesh, and which are peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driver.hardware.gpu import Gpu
from driver.nvml.pci_address import PciAddress

_Linked = dict[PciAddress, set[PciAddress]]


def nvlink_islands(gpus: Iterable[Gpu]) -> Mapping[PciAddress, str]:
    """The island of each GPU that has NVLinks: an id that all GPUs share that are connected by links.

    Two GPUs of an island may be connected only through others, as in a cube mesh. The id contains the lowest
    PCI address in the island. GPUs with links into NVSwitches are connected when they are in the same fabric
    clique, or in none.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    peers = _linked(by_pci)
    islands: dict[PciAddress, str] = {}
    for first in sorted(by_pci):
        if first in islands or not _has_links(by_pci[first], peers):
            continue
        name = _named("nvlink", first)
        waiting = [first]
        while waiting:
            pci = waiting.pop()
            if pci not in islands:
                islands[pci] = name
                waiting.extend(peers[pci])
    return islands


def nvlink_meshes(gpus: Iterable[Gpu]) -> Mapping[PciAddress, str]:
    """The mesh of each GPU that has NVLinks: an id of GPUs that all have links to each other.

    A GPU is in one mesh. Starting with the lowest address, each GPU that is in no mesh yet makes the largest
    that it can. Of equally large ones it takes the one with the most links, then the one with the lowest
    addresses.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    peers = _linked(by_pci)
    widths = {(gpu.pci, link.peer): link.count for gpu in by_pci.values() for link in gpu.links}
    meshes: dict[PciAddress, str] = {}
    for first in sorted(by_pci):
        if first in meshes or not _has_links(by_pci[first], peers):
            continue
        mesh = _largest_mesh((first,), sorted(peers[first] - meshes.keys()), peers, widths)
        meshes.update(dict.fromkeys(mesh, _named("mesh", first)))
    return meshes


def nvlink_peers(gpus: Iterable[Gpu]) -> Mapping[PciAddress, tuple[int, ...]]:
    """The NVML indexes of the GPUs to which each GPU has NVLinks, direct or through a switch; sorted.

    A GPU without links to GPUs of this node has an empty tuple. A GPU without NVLinks is left out.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    linked = _linked(by_pci)
    return {
        pci: tuple(sorted(by_pci[peer].index for peer in linked[pci]))
        for pci in by_pci
        if _has_links(by_pci[pci], linked)
    }


def nvlink_widths(gpus: Iterable[Gpu]) -> Mapping[PciAddress, tuple[int, ...]]:
    """The number of NVLinks from each GPU to each of its peers, in the order of ``nvlink_peers``.

    Through switches it is the smaller number of links that the two have into them, as in ``nvidia-smi topo
    -m``.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    reported = {(gpu.pci, link.peer): link.count for gpu in by_pci.values() for link in gpu.links}

    def width(one: PciAddress, other: PciAddress) -> int:
        # Each end reports its links by itself, and one of the two may have failed.
        direct = reported.get((one, other)) or reported.get((other, one))
        return direct or min(by_pci[one].switch_links, by_pci[other].switch_links)

    return {
        pci: tuple(width(pci, peer) for peer in sorted(peers, key=lambda peer: by_pci[peer].index))
        for pci, peers in _linked(by_pci).items()
        if peers
    }


def _named(kind: str, first: PciAddress) -> str:
    return f"{kind}-{str(first).replace(':', '-').replace('.', '-')}"


def _has_links(gpu: Gpu, linked: _Linked) -> bool:
    return bool(gpu.links or gpu.switch_links or linked[gpu.pci])


def _largest_mesh(
    mesh: tuple[PciAddress, ...],
    candidates: list[PciAddress],
    peers: _Linked,
    widths: Mapping[tuple[PciAddress, PciAddress], int],
) -> tuple[PciAddress, ...]:
    """The best mesh that ``mesh`` becomes with some of ``candidates``, which all have links to all of it."""

    def worth(found: tuple[PciAddress, ...]) -> tuple[int, int]:
        return len(found), sum(widths.get((one, other), 0) for one in found for other in found)

    best = mesh
    # A search for cliques takes exponential time in general. A node has few GPUs, and meshes are dense.
    for position, pci in enumerate(candidates):
        # Even with all candidates that are left it would be smaller.
        if len(mesh) + len(candidates) - position < len(best):
            break
        inside = [other for other in candidates[position + 1 :] if other in peers[pci]]
        found = _largest_mesh((*mesh, pci), inside, peers, widths)
        if worth(found) > worth(best):
            best = found
        if len(inside) == len(candidates) - position - 1:
            # It has links to all that are left, so no mesh without it is larger.
            break
    return best


def _linked(by_pci: Mapping[PciAddress, Gpu]) -> _Linked:
    """The GPUs that have links to each other. A link that only one end reports counts for both.

    A GPU whose clique is not known belongs to the others if they are all in one clique, or in none.
    """
    linked: _Linked = {pci: set() for pci in by_pci}
    switched: dict[str | None, list[PciAddress]] = {}
    unsure: list[PciAddress] = []
    for pci, gpu in by_pci.items():
        if gpu.switch_links:
            clique_is_known = "fabric" not in gpu.unanswered
            (switched.setdefault(gpu.fabric_clique, []) if clique_is_known else unsure).append(pci)
        for link in gpu.links:
            if link.peer in linked and link.peer != pci:
                linked[pci].add(link.peer)
                linked[link.peer].add(pci)
    if unsure and len(switched) <= 1:
        switched = {None: [*(pci for group in switched.values() for pci in group), *unsure]}
    for group in switched.values():
        for pci in group:
            linked[pci].update(peer for peer in group if peer != pci)
    return linked
