"""Works out from the NVLinks of a node's GPUs which of them form an island or a mesh, and which are peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driver.hardware.gpu import Gpu
from driver.nvml.pci_address import PciAddress

_Linked = dict["PciAddress", set["PciAddress"]]


def nvlink_islands(gpus: Iterable[Gpu]) -> Mapping[PciAddress, str]:
    """The island of each GPU that has NVLinks: an id that GPUs share when links connect them.

    Two GPUs of an island may be connected through others only, as in a cube mesh. The id is made of the
    lowest PCI address in the island. GPUs with links into NVSwitches are connected when they are in the same
    fabric clique, or in none.
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
    """The mesh of each GPU that has NVLinks: an id of GPUs each of which has links to each of the others.

    A GPU is in one mesh. The lowest GPU that is in none yet makes the largest that it can; of equally large
    ones that with the most links, then that of the lowest addresses.
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
    """The NVML indexes of the GPUs that each GPU has NVLinks to, straight or through a switch; sorted.

    A GPU without links to GPUs of this node has an empty tuple, one without NVLinks is left out.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    linked = _linked(by_pci)
    return {
        pci: tuple(sorted(by_pci[peer].index for peer in linked[pci]))
        for pci in by_pci
        if _has_links(by_pci[pci], linked)
    }


def nvlink_widths(gpus: Iterable[Gpu]) -> Mapping[PciAddress, tuple[int, ...]]:
    """How many NVLinks lead from each GPU to each of its peers, in the order of ``nvlink_peers``.

    Through switches they are those of the one that has fewer into them, as ``nvidia-smi topo -m`` counts.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    told = {(gpu.pci, link.peer): link.count for gpu in by_pci.values() for link in gpu.links}

    def width(one: PciAddress, other: PciAddress) -> int:
        direct = told.get((one, other)) or told.get((other, one))
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
    """The best way to make ``mesh`` larger by ``candidates``, each of which has links to all of it."""

    def worth(found: tuple[PciAddress, ...]) -> tuple[int, int]:
        return len(found), sum(widths.get((one, other), 0) for one in found for other in found)

    best = mesh
    for position, pci in enumerate(candidates):
        if len(mesh) + len(candidates) - position < len(best):
            break
        inside = [other for other in candidates[position + 1 :] if other in peers[pci]]
        found = _largest_mesh((*mesh, pci), inside, peers, widths)
        if worth(found) > worth(best):
            best = found
        if len(inside) == len(candidates) - position - 1:
            break  # it has links to all that are left, so nothing without it is larger
    return best


def _linked(by_pci: Mapping[PciAddress, Gpu]) -> _Linked:
    """Which GPUs have links to each other; a link that one end reports is a link of both.

    A GPU whose clique is not known belongs to the others where those are in one clique, or in none.
    """
    linked: _Linked = {pci: set() for pci in by_pci}
    switched: dict[str | None, list[PciAddress]] = {}
    unsure: list[PciAddress] = []
    for pci, gpu in by_pci.items():
        if gpu.switch_links:
            clique_told = "fabric" not in gpu.unanswered
            (switched.setdefault(gpu.fabric_clique, []) if clique_told else unsure).append(pci)
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
