"""The forms in which the GPUs of a node are offered. The kinds add to them one after the other."""

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

VGPU_MANAGER = "the vGPU manager uses it, so no container can"


@dataclass(frozen=True, slots=True)
class GpuForms:
    """The forms in which one GPU is offered."""

    # The whole GPU, without counters, and whether it is offered in this form.
    physical: Device
    whole: bool = False
    # Partitions, or the vGPUs of a host, in packing order.
    partitions: tuple[Device, ...] = ()
    # The whole GPU, once for each way in which it is shared.
    shared: tuple[Device, ...] = ()
    # The GPU for a virtual machine, without counters. If it spans several GPUs, the first of them has it.
    passthrough: Device | None = None
    # They keep the forms above apart if these exclude each other.
    counters: CounterSet | None = None
    # What is not offered, with the reason.
    withheld: tuple[tuple[Part, str], ...] = ()
    # Whether the forms depend on something that could not be read yet.
    doubtful: bool = False
    # Whether the GPU is for virtual machines only, because no container can use it.
    closed: bool = False

    @property
    def all_of_it(self) -> Device:
        """The whole GPU beside its other forms: it consumes all of the counters."""
        if self.counters is None:
            return self.physical
        return replace(self.physical, counter_set=self.counters.name, consumes=dict(self.counters.counters))

    def nothing(self, reason: str) -> GpuForms:
        """The GPU without any form, for this reason."""
        return GpuForms(self.physical, withheld=(("gpu", reason),), closed=self.closed)

    def unknown(self, reason: str) -> GpuForms:
        """The GPU while it is not known what to offer of it; its published devices stay meanwhile."""
        return replace(self.nothing(reason), doubtful=True)


@dataclass(frozen=True, slots=True)
class Forms:
    """What a node offers: the forms of each GPU, and devices that do not belong to a GPU."""

    gpus: Mapping[PciAddress, GpuForms] = field(default_factory=dict)
    others: tuple[Device, ...] = ()

    def changed(
        self,
        inventory: Inventory,
        policies: Mapping[PciAddress, GpuPolicy],
        change: Callable[[Gpu, GpuPolicy, GpuForms], GpuForms],
    ) -> Forms:
        """The forms after ``change`` was applied to each GPU that has a policy.

        GPUs in doubt, and those that no container can use, stay as they are.
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
    """A counter set with one counter of 1 for each name: only one device can consume each."""
    return CounterSet(gpu_device_name(pci), pci, dict.fromkeys(names, 1))
