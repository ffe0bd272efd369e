"""How functions and drivers come together and part: the rules of the driver core and the PCI bus.

All are functions of the node's state: what they refuse is an OSError with the number of the kernel. A driver
that has to release a function does so once nobody uses it: until then it is ``releasing``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import MachineState, with_gpu
from fakegpu.sysfs.drivers import (
    NVIDIA_DRIVER,
    driver_named,
    first_driver,
    has_vfio_device,
    is_vfio,
    loaded_drivers,
    matches,
    refusal,
)
from fakegpu.sysfs.functions import functions_of, sriov_of
from fakegpu.sysfs.state import LET_GO, FunctionState, KernelState
from fakegpu.sysfs.vgpu_rules import refused

_LONGEST_OVERRIDE = 4094


class StillInUse(Exception):
    """The driver lets go of a function only once nobody uses it; ``node`` is what has changed till then."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and its kernel at one moment; ``in_use`` says whether a function is held open by anybody."""

    spec: MachineSpec
    machine: MachineState
    kernel: KernelState
    in_use: Callable[[PciAddress], bool]

    def function(self, pci: PciAddress) -> FunctionState:
        """The state of a function that is there."""
        return self.kernel.functions[pci]

    def with_function(self, pci: PciAddress, function: FunctionState) -> Node:
        """The node with one function's state replaced."""
        return replace(self, kernel=self.kernel.with_function(pci, function))


def bind(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """Bind a function to a driver that was named: bind_store of the kernel."""
    function = functions_of(node.spec)[pci]
    driver = driver_named(node.spec, driver_name)
    if driver is None or not matches(driver, function, node.function(pci).override):
        raise refused(errno.ENODEV)
    if node.function(pci).driver is not None:
        raise refused(errno.EBUSY)
    return _probed(node, driver_name, pci)


def probe(node: Node, pci: PciAddress) -> Node:
    """Let the bus look for a driver of a function that has none; nothing happens where none takes it."""
    if node.function(pci).driver is not None:
        return node
    function = functions_of(node.spec)[pci]
    for driver in loaded_drivers(node.spec, node.kernel.modules):
        if matches(driver, function, node.function(pci).override):
            try:
                return _probed(node, driver.name, pci)
            except OSError:
                continue
    return node


def unbind(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """Have a driver let go of a function: unbind_store; raises StillInUse while it cannot."""
    if node.function(pci).driver != driver_name:
        raise refused(errno.ENODEV)
    if node.in_use(pci):
        raise StillInUse(node.with_function(pci, replace(node.function(pci), releasing=True)))
    return released(node, pci)


def released(node: Node, pci: PciAddress) -> Node:
    """The node once a driver has let go of a function, with all that goes with it."""
    old = node.function(pci)
    new = replace(old, driver=None, releasing=False, vfio=None, bound=LET_GO)
    node = node.with_function(pci, new)
    if old.driver == NVIDIA_DRIVER and pci in node.machine.gpus:
        gpu = node.machine.gpus[pci]
        mig = gpu.mig.after_reset(mode_lasts=node.spec.product.mig_needs_reset)
        gone = replace(gpu, mig=mig, present=False, process_ids=()).after_load()
        node = replace(node, machine=with_gpu(node.machine, pci, gone))
    return node


def _probed(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """The node once a driver has taken a function; raises OSError where its probe fails."""
    driver = driver_named(node.spec, driver_name)
    function = functions_of(node.spec)[pci]
    if driver is None:
        raise refused(errno.ENODEV)
    if number := refusal(node.spec, driver, function, node.function(pci).virtual):
        raise refused(number)
    physical = node.function(function.physical).driver if function.physical is not None else NVIDIA_DRIVER
    if driver_name == NVIDIA_DRIVER and physical != NVIDIA_DRIVER:
        raise refused(errno.ENODEV)  # the vGPU manager runs a virtual function by its physical one
    if not driver.is_vfio and not function.is_bridge and _group_is_owned(node, pci):
        raise refused(errno.EBUSY)  # iommu_device_use_default_domain: a virtual machine owns the group
    bindings = node.kernel.bindings + 1
    vfio = _free_vfio(node) if has_vfio_device(node.spec, driver_name, function) else None
    new = replace(node.function(pci), driver=driver_name, vfio=vfio, bound=bindings)
    node = replace(node, kernel=replace(node.kernel.with_function(pci, new), bindings=bindings))
    if driver_name == NVIDIA_DRIVER and pci in node.machine.gpus:
        gpu = replace(node.machine.gpus[pci], present=True, minor=_another_minor(node.machine, pci))
        node = replace(node, machine=with_gpu(node.machine, pci, gpu))
    return node


def set_override(node: Node, pci: PciAddress, text: str) -> Node:
    """Write ``driver_override``, up to a newline; an empty line clears it, no bytes at all do nothing."""
    if not text:
        return node
    if len(text) > _LONGEST_OVERRIDE:
        raise refused(errno.EINVAL)
    override = text.partition("\n")[0]
    return node.with_function(pci, replace(node.function(pci), override=override))


def set_virtual(node: Node, pci: PciAddress, text: str) -> Node:
    """Write ``sriov_numvfs``: sriov_numvfs_store of the kernel; raises StillInUse while one is used."""
    number = _number(text)
    state = node.function(pci)
    sriov = sriov_of(node.spec)
    if number > (sriov.total if sriov else 0):
        raise refused(errno.ERANGE)
    if number == state.virtual:
        return node
    driver = driver_named(node.spec, state.driver)
    if driver is None or not driver.makes_virtual:
        raise refused(errno.ENOENT)  # no driver, or one without sriov_configure, as that of NVIDIA is
    if number and state.virtual:
        raise refused(errno.EBUSY)
    return _with_virtual(node, pci, number) if number else _without_virtual(node, pci)


def _with_virtual(node: Node, physical: PciAddress, number: int) -> Node:
    known = functions_of(node.spec)
    node = node.with_function(physical, replace(node.function(physical), virtual=number))
    for pci, one in known.items():
        if one.physical == physical and one.number < number:
            node = node.with_function(pci, FunctionState())
            if node.function(physical).autoprobe:
                node = probe(node, pci)
    return node


def _without_virtual(node: Node, physical: PciAddress) -> Node:
    mine = [pci for pci, one in functions_of(node.spec).items() if one.physical == physical]
    there = [pci for pci in mine if pci in node.kernel.functions]
    used = [pci for pci in there if node.function(pci).driver is not None and node.in_use(pci)]
    if used:
        for pci in used:
            node = node.with_function(pci, replace(node.function(pci), releasing=True))
        raise StillInUse(node)
    for pci in there:
        node = released(node, pci)
    left = {pci: one for pci, one in node.kernel.functions.items() if pci not in there}
    node = replace(node, kernel=replace(node.kernel, functions=left))
    return node.with_function(physical, replace(node.function(physical), virtual=0))


def load(node: Node, modules: list[str]) -> Node:
    """Load modules: their drivers take what they match and nobody has, as driver_attach does."""
    new = [name for name in modules if name not in node.kernel.modules]
    kernel = replace(node.kernel, modules=(*node.kernel.modules, *new))
    node = replace(node, kernel=kernel)
    for driver in loaded_drivers(node.spec, new):
        for pci, state in node.kernel.functions.items():
            takes = driver.module in new and state.driver is None and not state.releasing
            function = functions_of(node.spec)[pci]
            if takes and first_driver(node.spec, function, state.override, new) == driver.name:
                with suppress(OSError):  # a probe that fails leaves the function as it is
                    node = _probed(node, driver.name, pci)
    return node


def _group_is_owned(node: Node, pci: PciAddress) -> bool:
    """Whether a virtual machine has any other function of the same IOMMU group open."""
    known = functions_of(node.spec)
    return any(
        known[other].group == known[pci].group
        and other != pci
        and is_vfio(node.spec, state.driver)
        and node.in_use(other)
        for other, state in node.kernel.functions.items()
    )


def _free_vfio(node: Node) -> int:
    taken = {one.vfio for one in node.kernel.functions.values()}
    return next(number for number in count() if number not in taken)


def _another_minor(machine: MachineState, pci: PciAddress) -> int:
    """The lowest free minor but the last one of the GPU.

    The driver gives the lowest free one, which may have been given to another GPU meanwhile; here it is
    another one always, so that nobody relies on the old one.
    """
    taken = {gpu.minor for other, gpu in machine.gpus.items() if gpu.present or other == pci}
    return next(number for number in count() if number not in taken)


def _number(text: str) -> int:
    words = text.strip()
    try:
        number = int(words, 0)
    except ValueError:
        raise refused(errno.EINVAL) from None
    if number < 0:
        raise refused(errno.EINVAL)
    return number
