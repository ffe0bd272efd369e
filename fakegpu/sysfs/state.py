"""What the pretend kernel remembers: the driver of each function, modules, and writes that wait."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Literal

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.spec import MachineSpec
from fakegpu.sysfs.drivers import NVIDIA_DRIVER, first_driver, has_vfio_device, modules_at_boot
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.vgpu_rules import Vgpu

SCHEMA = 1
LET_GO = -1

FaultKind = Literal["fail", "hang", "ignore", "die-before", "die-after"]
FAULT_KINDS: tuple[FaultKind, ...] = ("fail", "hang", "ignore", "die-before", "die-after")


@dataclass(frozen=True, slots=True)
class FunctionState:
    """One function now. ``releasing``: its driver has to release it and waits until nobody uses it.

    The link to a driver that is releasing is gone already, as the kernel removes it first. ``vfio`` is the
    number of its vfio device, ``bound`` counts the bindings of the machine up to its own: LET_GO after it.
    ``virtual`` is how many virtual functions it has, ``autoprobe`` whether they get a driver by themselves.
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
        """Whether the NVIDIA driver had to let go of it, be it for another driver or for none."""
        return self.driver != NVIDIA_DRIVER and (self.driver is not None or self.bound == LET_GO)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A write that the kernel has begun and not ended: to which file, below the root, and for which function.

    ``error`` is its result once there is one: 0, or the kernel's number. ``given_up``: nobody asks for it.
    """

    number: int
    path: str
    text: str
    pci: PciAddress
    error: int | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class KernelFault:
    """A rule that spoils writes whose path, below the root, has these ``words`` in it.

    ``fail`` answers with ``error``, ``ignore`` says that it has worked, ``hang`` lasts as long as the rule,
    and the others kill the process before or after the write. ``times`` counts down; None never ends.
    """

    number: int
    words: str
    kind: FaultKind
    error: int = 0
    times: int | None = None


@dataclass(frozen=True, slots=True)
class KernelState:
    """All that can change. ``functions`` has those that are there; ``bindings`` counts them.

    Below ``sysfs_roots`` the files follow the state, below ``device_roots`` those in /dev.
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
        """Whether the NVIDIA driver has the function, if only until it is let go of."""
        found = self.functions.get(pci)
        return found is not None and found.driver == NVIDIA_DRIVER

    def to_json(self, machine: str) -> str:
        """The state as the text of its file."""
        document: dict[str, object] = {"schema": SCHEMA, "machine": machine}
        for name in ("modules", "bindings", "next_number", "sysfs_roots", "device_roots"):
            document[name] = getattr(self, name)
        document["functions"] = {str(pci): asdict(one) for pci, one in sorted(self.functions.items())}
        document["waiting"] = [asdict(one) | {"pci": str(one.pci)} for one in self.waiting]
        document["vgpus"] = [asdict(one) | {"function": str(one.function)} for one in self.vgpus]
        document["faults"] = [asdict(one) for one in self.faults]
        return json.dumps(document) + "\n"

    @classmethod
    def from_json(cls, text: str, machine: str) -> KernelState:
        """Read a file's text; raises ValueError when it is none, or another machine's."""
        document: dict[str, Any] = json.loads(text)
        try:
            head = (document.pop("schema"), document.pop("machine"))
            state = cls(
                functions={
                    PciAddress.parse(pci): FunctionState(**one)
                    for pci, one in document.pop("functions").items()
                },
                modules=tuple(document.pop("modules")),
                waiting=tuple(
                    Waiting(**one | {"pci": PciAddress.parse(one["pci"])}) for one in document.pop("waiting")
                ),
                vgpus=tuple(
                    Vgpu(**one | {"function": PciAddress.parse(one["function"])})
                    for one in document.pop("vgpus")
                ),
                faults=tuple(KernelFault(**one) for one in document.pop("faults")),
                sysfs_roots=tuple(document.pop("sysfs_roots")),
                device_roots=tuple(document.pop("device_roots")),
                **document,
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no state of a fake kernel ({error})") from error
        if head != (SCHEMA, machine):
            raise ValueError(f"it holds schema {head[0]} of machine {head[1]!r}")
        return state
