"""Which GPUs a reset takes together, by the rules of nvidia-smi(1): pure.

From the Ampere architecture on a GPU is reset by itself. Of an older one all go that NVLinks connect with it,
directly, over others or over NVSwitches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from driver.hardware.gpu import Gpu
    from driver.nvml.pci_address import PciAddress

_TOGETHER = frozenset({"Pascal", "Volta", "Turing"})
"""The architectures with NVLinks before Ampere, as the published attribute has them."""


def reset_together(pci: PciAddress, gpus: Iterable[Gpu]) -> tuple[PciAddress, ...]:
    """The GPUs of a node that have to be reset with one of them, sorted, that one among them."""
    known = {gpu.pci: gpu for gpu in gpus}
    found, following = {pci}, [pci]
    while following:
        for other in _linked(known.get(following.pop()), known):
            if other not in found:
                found.add(other)
                following.append(other)
    return tuple(sorted(found))


def _linked(gpu: Gpu | None, known: Mapping[PciAddress, Gpu]) -> set[PciAddress]:
    if gpu is None or gpu.architecture not in _TOGETHER:
        return set()
    over_switches = {pci for pci, other in known.items() if gpu.switch_links and other.switch_links}
    return {link.peer for link in gpu.links} | over_switches
