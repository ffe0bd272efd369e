"""The forms in which the GPUs of a node are offered, as the kinds add to them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from driver.devices.device import CounterSet, Device
from driver.devices.gpu_policy import GpuPolicy
from driver.devices.names import gpu_device_name
from driver.hardware.gpu import Gpu, Inventory
from driver.nvml.pci_address import PciAddress

Part = Literal["gpu", "whole", "partitions", "shared", "passthrough"]

VGPU_MANAGER = "the vGPU manager has it, so no container can use it"


@dataclass(frozen=True, slots=True)
class GpuForms:
    """The forms in which one GPU is offered.

    ``physical`` is the GPU as a whole, without counters; ``whole`` is whether it is offered so.
    ``partitions`` are devices in packing order, ``shared`` the GPU as a whole in the ways in which it is
    shared. ``passthrough`` is the GPU for a virtual machine, without counters, perhaps together with other
    GPUs: the first of them has it. ``counters`` keep all of these apart, where they exclude each other.
    ``withheld`` maps what is kept back to the reason. ``doubtful``: what of it is offered depends on what
    is not known. ``closed``: it is for virtual machines alone, since no container can use it.
    """

    physical: Device
    whole: bool = False
    partitions: tuple[Device, ...] = ()
    shared: tuple[Device, ...] = ()
    passthrough: Device | None = None
    counters: CounterSet | None = None
    withheld: tuple[tuple[Part, str], ...] = ()
    doubtful: bool = False
    closed: bool = False

    @property
    def all_of_it(self) -> Device:
        """The GPU as a whole beside its other forms: with all of their counters."""
        if self.counters is None:
            return self.physical
        return replace(self.physical, counter_set=self.counters.name, consumes=dict(self.counters.counters))

    def nothing(self, reason: str) -> GpuForms:
        """The GPU when nothing of it is offered."""
        return GpuForms(self.physical, withheld=(("gpu", reason),), closed=self.closed)

    def unknown(self, reason: str) -> GpuForms:
        """The GPU while it is not known what to offer of it: what was published of it stays."""
        return replace(self.nothing(reason), doubtful=True)


@dataclass(frozen=True, slots=True)
class Forms:
    """What a node offers: the forms of each GPU, and devices that are no form of one GPU."""

    gpus: Mapping[PciAddress, GpuForms] = field(default_factory=dict)
    others: tuple[Device, ...] = ()

    def changed(
        self,
        inventory: Inventory,
        policies: Mapping[PciAddress, GpuPolicy],
        change: Callable[[Gpu, GpuPolicy, GpuForms], GpuForms],
    ) -> Forms:
        """The forms after a kind has changed those of each GPU by its policy, as far as they are known.

        Those of GPUs that no container can use stay as they are.
        """
        gpus = {
            gpu.pci: change(gpu, policies[gpu.pci], forms)
            for gpu in inventory.gpus
            if gpu.pci in policies
            and (forms := self.gpus.get(gpu.pci))
            and not (forms.doubtful or forms.closed)
        }
        return replace(self, gpus={**self.gpus, **gpus})


def alternatives(pci: PciAddress, names: Iterable[str]) -> CounterSet:
    """One counter for each thing of a GPU that is offered in several ways, of which one is taken."""
    return CounterSet(gpu_device_name(pci), pci, dict.fromkeys(names, 1))
