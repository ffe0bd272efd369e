"""Says why nothing may be changed on a node, or on one of its GPUs: somebody else uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver.nvml.pci_address import PciAddress
from gpuctl.verify.subject import Subject


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing may be changed, one sentence for each reason, with the way out.

    ``of_node`` concerns the whole node: if it is not empty, nothing may be changed at all. ``of_gpus`` has
    the GPUs that have to be left alone, also those that NVML does not list; the others may be changed.
    """

    of_node: tuple[str, ...] = ()
    of_gpus: Mapping[PciAddress, str] = field(default_factory=dict)


def refusals(subject: Subject) -> Refused:
    """Look at the node now, and say what speaks against changing it.

    Whoever changes something a while later calls it again just before. An unfinished verification is not
    looked for here; see ``gpuctl.verify.change.undo``.
    """
    raise NotImplementedError
