"""Works out from the NVLinks of a node's GPUs which of them form an island and who is whose peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from driver.hardware.gpu import Gpu
    from driver.nvml.pci_address import PciAddress


def nvlink_islands(gpus: Iterable[Gpu]) -> Mapping[PciAddress, str]:
    """The island of each GPU that has NVLinks: an id that GPUs share when links connect them.

    The id is made of the lowest PCI address in the island, so it stays the same over reboots. GPUs
    with links into NVSwitches are connected when they are in the same fabric clique, or in none.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    peers = _linked(by_pci)
    islands: dict[PciAddress, str] = {}
    for first in sorted(by_pci):
        if first in islands or not _has_links(by_pci[first], peers):
            continue
        name = f"nvlink-{str(first).replace(':', '-').replace('.', '-')}"
        waiting = [first]
        while waiting:
            pci = waiting.pop()
            if pci not in islands:
                islands[pci] = name
                waiting.extend(peers[pci])
    return islands


def nvlink_peers(gpus: Iterable[Gpu]) -> Mapping[PciAddress, tuple[int, ...]]:
    """The NVML indexes of the GPUs that each GPU has NVLinks to, straight or through a switch; sorted.

    A GPU with links to nobody here has an empty tuple, one without NVLinks is left out.
    """
    by_pci = {gpu.pci: gpu for gpu in gpus}
    linked = _linked(by_pci)
    return {
        pci: tuple(sorted(by_pci[peer].index for peer in linked[pci]))
        for pci in by_pci
        if _has_links(by_pci[pci], linked)
    }


def _has_links(gpu: Gpu, linked: Mapping[PciAddress, set[PciAddress]]) -> bool:
    return bool(gpu.links or gpu.switch_links or linked[gpu.pci])


def _linked(by_pci: Mapping[PciAddress, Gpu]) -> dict[PciAddress, set[PciAddress]]:
    """Who has a link to whom; a link that one end tells is a link of both."""
    linked: dict[PciAddress, set[PciAddress]] = {pci: set() for pci in by_pci}
    switched: dict[str | None, list[PciAddress]] = {}
    for pci, gpu in by_pci.items():
        if gpu.switch_links:
            switched.setdefault(gpu.fabric_clique, []).append(pci)
        for link in gpu.links:
            if link.peer in linked and link.peer != pci:
                linked[pci].add(link.peer)
                linked[link.peer].add(pci)
    for group in switched.values():
        for pci in group:
            linked[pci].update(peer for peer in group if peer != pci)
    return linked
