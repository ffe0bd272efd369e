"""How drivers bind PCI functions and release them: the rules of the kernel's driver core and PCI bus.

Everything here computes a new state of the node. What the kernel refuses is an OSError with the kernel's
errno. A driver that has to release a function does so once no process uses it; until then the function is
``releasing``.
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
from fakegpu.sysfs import drivers
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.state import UNBOUND, FunctionState, KernelState
from fakegpu.sysfs.vgpu_rules import refused

# A write to sysfs is at most a page; driver_override_store keeps one byte for its newline and one for NUL.
_LONGEST_OVERRIDE = 4094


class StillInUse(Exception):
    """The driver cannot release a function that a process has open; ``node`` is the state until then."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and its kernel at one moment; ``in_use`` says whether any process has a function open."""

    spec: MachineSpec
    machine: MachineState
    kernel: KernelState
    in_use: Callable[[PciAddress], bool]

    def function(self, pci: PciAddress) -> FunctionState:
        """The state of a function that exists."""
        return self.kernel.functions[pci]

    def with_function(self, pci: PciAddress, function: FunctionState) -> Node:
        """The node with one function's state replaced."""
        return replace(self, kernel=self.kernel.with_function(pci, function))


def bind(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """Bind a function to the driver in whose folder ``bind`` was written: bind_store of the kernel."""
    function = functions_of(node.spec)[pci]
    driver = drivers.driver_named(node.spec, driver_name)
    # The kernel asks the bus first whether the driver matches, also for a function that has a driver.
    if driver is None or not drivers.matches(driver, function, node.function(pci).override):
        raise refused(errno.ENODEV)
    if node.function(pci).driver is not None:
        raise refused(errno.EBUSY)
    return _probed(node, driver_name, pci)


def probe(node: Node, pci: PciAddress) -> Node:
    """Let the bus look for a driver of a function that has none; nothing changes if no driver takes it."""
    if node.function(pci).driver is not None:
        return node
    function = functions_of(node.spec)[pci]
    for driver in drivers.loaded_drivers(node.spec, node.kernel.modules):
        if drivers.matches(driver, function, node.function(pci).override):
            # As in the kernel, a driver whose probe fails is skipped, and the next that matches is tried.
            try:
                return _probed(node, driver.name, pci)
            except OSError:
                continue
    return node


def unbind(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """Make a driver release a function: unbind_store; raises StillInUse while a process uses the function."""
    if node.function(pci).driver != driver_name:
        raise refused(errno.ENODEV)
    # The write to ``unbind`` does not return before the driver's remove function has: it waits for users.
    if node.in_use(pci):
        raise StillInUse(node.with_function(pci, replace(node.function(pci), releasing=True)))
    return released(node, pci)


def released(node: Node, pci: PciAddress) -> Node:
    """The node after a driver has released a function, and everything that ends with that."""
    old = node.function(pci)
    new = replace(old, driver=None, releasing=False, vfio=None, bound=UNBOUND)
    node = node.with_function(pci, new)
    # NVML lists only GPUs that the NVIDIA driver is bound to, and none of their settings outlasts it.
    if old.driver == drivers.NVIDIA_DRIVER and pci in node.machine.gpus:
        gpu = node.machine.gpus[pci]
        mig = gpu.mig.after_reset(mode_lasts=node.spec.product.mig_needs_reset)
        gone = replace(gpu, mig=mig, present=False, process_ids=()).after_load()
        node = replace(node, machine=with_gpu(node.machine, pci, gone))
    return node


def _probed(node: Node, driver_name: str, pci: PciAddress) -> Node:
    """The node after a driver was bound to a function; raises OSError if the driver's probe fails."""
    driver = drivers.driver_named(node.spec, driver_name)
    function = functions_of(node.spec)[pci]
    if driver is None:
        raise refused(errno.ENODEV)
    if number := drivers.refusal(node.spec, driver, function, node.function(pci).virtual):
        raise refused(number)
    # The vGPU manager runs a virtual function through its physical function, so it needs both.
    physical = function.physical or pci
    if driver_name == drivers.NVIDIA_DRIVER and physical != pci and not node.kernel.has_nvidia(physical):
        raise refused(errno.ENODEV)
    # iommu_device_use_default_domain: while a virtual machine owns the IOMMU group, no driver of the host may
    # use DMA with another function of it.
    if not driver.is_vfio and not function.is_bridge and _group_is_owned(node, pci):
        raise refused(errno.EBUSY)
    bindings = node.kernel.bindings + 1
    vfio = _free_vfio(node) if drivers.has_vfio_device(node.spec, driver_name, function) else None
    new = replace(node.function(pci), driver=driver_name, vfio=vfio, bound=bindings)
    node = replace(node, kernel=replace(node.kernel.with_function(pci, new), bindings=bindings))
    if driver_name == drivers.NVIDIA_DRIVER and pci in node.machine.gpus:
        gpu = replace(node.machine.gpus[pci], present=True, minor=_another_minor(node.machine, pci))
        node = replace(node, machine=with_gpu(node.machine, pci, gpu))
    return node


def set_override(node: Node, pci: PciAddress, text: str) -> Node:
    """Write ``driver_override``: the text up to a newline. An empty line clears it."""
    # A write of no bytes never reaches the kernel's store function.
    if not text:
        return node
    if len(text) > _LONGEST_OVERRIDE:
        raise refused(errno.EINVAL)
    override = text.partition("\n")[0]
    return node.with_function(pci, replace(node.function(pci), override=override))


def set_virtual(node: Node, pci: PciAddress, text: str) -> Node:
    """Write ``sriov_numvfs``: sriov_numvfs_store of the kernel.

    Raises StillInUse while a virtual function that would go is in use.
    """
    number = _number(text)
    state = node.function(pci)
    sriov = node.spec.product.sriov
    if number > (sriov.total if sriov else 0):
        raise refused(errno.ERANGE)
    if number == state.virtual:
        return node
    # Without a driver, or with one that has no sriov_configure, such as NVIDIA's.
    driver = drivers.driver_named(node.spec, state.driver)
    if driver is None or not driver.makes_virtual:
        raise refused(errno.ENOENT)
    # The number can change only over 0.
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
    """Load modules: their drivers bind the functions that match and have no driver, as driver_attach does."""
    new = [name for name in modules if name not in node.kernel.modules]
    kernel = replace(node.kernel, modules=(*node.kernel.modules, *new))
    node = replace(node, kernel=kernel)
    for driver in drivers.loaded_drivers(node.spec, new):
        for pci, state in node.kernel.functions.items():
            takes = driver.module in new and state.driver is None and not state.releasing
            function = functions_of(node.spec)[pci]
            if takes and drivers.first_driver(node.spec, function, state.override, new) == driver.name:
                # A probe that fails leaves the function without a driver.
                with suppress(OSError):
                    node = _probed(node, driver.name, pci)
    return node


def _group_is_owned(node: Node, pci: PciAddress) -> bool:
    """Whether a virtual machine has another function of the same IOMMU group open through vfio."""
    known = functions_of(node.spec)
    return any(
        known[other].group == known[pci].group
        and other != pci
        and drivers.is_vfio(node.spec, state.driver)
        and node.in_use(other)
        for other, state in node.kernel.functions.items()
    )


def _free_vfio(node: Node) -> int:
    taken = {one.vfio for one in node.kernel.functions.values()}
    return next(number for number in count() if number not in taken)


def _another_minor(machine: MachineState, pci: PciAddress) -> int:
    """The lowest free minor other than the one that the GPU had."""
    # The NVIDIA driver gives the lowest free minor, which is the old one if no other GPU got it meanwhile.
    # Here it always differs, so that code which relies on the old one fails in tests.
    taken = {gpu.minor for other, gpu in machine.gpus.items() if gpu.present or other == pci}
    return next(number for number in count() if number not in taken)


def _number(text: str) -> int:
    # The kernel takes hexadecimal numbers as well (kstrtou16 with base 0).
    try:
        number = int(text.strip(), 0)
    except ValueError:
        raise refused(errno.EINVAL) from None
    if number < 0:
        raise refused(errno.EINVAL)
    return number
