"""The state of the pretend kernel: the driver of each function, modules, and writes that wait."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.documents import read_state, to_document
from fakegpu.machine.faults import KernelFault
from fakegpu.machine.spec import MachineSpec
from fakegpu.sysfs.drivers import NVIDIA_DRIVER, first_driver, has_vfio_device, modules_at_boot
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.vgpu_rules import Vgpu

_SCHEMA = 1
UNBOUND = -1


@dataclass(frozen=True, slots=True)
class FunctionState:
    """The state of one PCI function.

    ``override`` is the text of driver_override. ``releasing``: its driver has to release it and waits until
    no process uses it. ``vfio`` is the number of its vfio device. ``bound`` is the number of its last binding
    to a driver, counted over the whole machine; UNBOUND once the driver has released it. ``virtual`` is how
    many virtual functions it has, ``autoprobe`` whether the bus looks for drivers of these by itself.
    """

    driver: str | None = None
    override: str = ""
    releasing: bool = False
    vfio: int | None = None
    bound: int = 0
    virtual: int = 0
    autoprobe: bool = True

    @property
    def left_nvidia(self) -> bool:
        """Whether the NVIDIA driver had to release it, for another driver or for none."""
        return self.driver != NVIDIA_DRIVER and (self.driver is not None or self.bound == UNBOUND)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A write that the kernel has begun and not ended, to a file whose path below the root is ``path``.

    ``error`` is its result once there is one: 0 or an errno. ``given_up``: the process that wrote has timed
    out and will not ask for the result.
    """

    number: int
    path: str
    text: str
    pci: PciAddress
    error: int | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class KernelState:
    """Everything in the kernel that can change.

    ``functions`` has the functions that exist now. ``bindings`` counts how often a driver was bound to one.
    The files of sysfs below all ``sysfs_roots``, and those of /dev below all ``device_roots``, are kept up to
    date.
    """

    functions: Mapping[PciAddress, FunctionState]
    modules: tuple[str, ...]
    waiting: tuple[Waiting, ...] = ()
    faults: tuple[KernelFault, ...] = ()
    bindings: int = 0
    next_number: int = 1
    vgpus: tuple[Vgpu, ...] = ()
    sysfs_roots: tuple[str, ...] = ()
    device_roots: tuple[str, ...] = ()

    @classmethod
    def fresh(cls, spec: MachineSpec) -> KernelState:
        """The machine after its boot."""
        known = functions_of(spec)
        modules = modules_at_boot(spec)
        numbers = {slot.pci: slot.virtual_functions for slot in spec.slots}
        functions = {}
        vfio = count()
        for pci, one in known.items():
            if one.physical is None or one.number < numbers[one.physical]:
                driver = first_driver(spec, one, "", modules)
                number = next(vfio) if has_vfio_device(spec, driver, one) else None
                functions[pci] = FunctionState(driver, vfio=number, virtual=numbers.get(pci, 0))
        return cls(functions, modules)

    def with_function(self, pci: PciAddress, function: FunctionState) -> KernelState:
        """The state with one function replaced."""
        return replace(self, functions={**self.functions, pci: function})

    def has_nvidia(self, pci: PciAddress) -> bool:
        """Whether the NVIDIA driver is bound to the function, even if it is about to release it."""
        found = self.functions.get(pci)
        return found is not None and found.driver == NVIDIA_DRIVER

    def to_json(self, machine: str) -> str:
        """The state as the text of its file."""
        return json.dumps({"schema": _SCHEMA, "machine": machine, **to_document(self)}) + "\n"

    @classmethod
    def from_json(cls, text: str, machine: str) -> KernelState:
        """Read the text of a state file; raises ValueError for other text and for other machines."""
        return read_state(cls, json.loads(text), _SCHEMA, machine, "kernel")
