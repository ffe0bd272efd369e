"""A fake machine and its kernel after a reboot, and after loading or unloading the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from driver.nvml.pci_address import PciAddress
from fakegpu.machine.state import GpuState
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.drivers import NVIDIA_DRIVER, first_driver, has_vfio_device
from fakegpu.sysfs.functions import functions_of
from fakegpu.sysfs.state import UNBOUND, KernelState

_MODULE = "nvidia"


def rebooted(node: Node) -> Node:
    """The node after a reboot, without processes, MIG instances, modes and handles."""
    fresh = KernelState.fresh(node.spec)
    old = node.kernel
    kernel = replace(
        fresh,
        bindings=old.bindings + 1,
        next_number=old.next_number,
        faults=old.faults,
        sysfs_roots=old.sysfs_roots,
        device_roots=old.device_roots,
    )
    # A GPU that a test has taken out stays out; one that another driver had is bound to NVIDIA's again.
    back = {pci for pci in node.machine.gpus if old.functions[pci].left_nvidia}
    gpus = {
        pci: replace(gpu, lost=False, process_ids=(), present=gpu.present or pci in back)
        for pci, gpu in _after_load(node).items()
    }
    session, fabric = node.machine.session + 1, node.machine.fabric.after_boot()
    machine = replace(node.machine, gpus=gpus, driver_loaded=True, session=session, fabric=fabric)
    return replace(node, machine=machine, kernel=kernel)


def unloaded(node: Node) -> Node:
    """The node after the NVIDIA driver was unloaded from all functions, even from those in use."""
    kernel = node.kernel
    functions = {
        pci: replace(one, driver=None, releasing=False, vfio=None) if one.driver == NVIDIA_DRIVER else one
        for pci, one in kernel.functions.items()
    }
    kernel = replace(
        kernel, functions=functions, modules=tuple(one for one in kernel.modules if one != _MODULE)
    )
    machine = replace(node.machine, gpus=_after_load(node), driver_loaded=False)
    return replace(node, machine=machine, kernel=kernel)


def loaded(node: Node, version: str | None = None) -> Node:
    """The node after the NVIDIA driver was loaded, perhaps another version: it binds free functions."""
    machine, kernel = node.machine, node.kernel
    modules = (*kernel.modules, *(() if _MODULE in kernel.modules else (_MODULE,)))
    functions, gpus = dict(kernel.functions), dict(machine.gpus)
    bindings = kernel.bindings
    for pci, state in kernel.functions.items():
        function = functions_of(node.spec)[pci]
        if state.driver == NVIDIA_DRIVER:
            continue
        if state.driver is not None or first_driver(node.spec, function, state.override, (_MODULE,)) is None:
            if pci in gpus:
                functions[pci] = state if state.driver is not None else replace(state, bound=UNBOUND)
                gpus[pci] = replace(gpus[pci], present=False)
            continue
        bindings += 1
        vfio = None
        if has_vfio_device(node.spec, NVIDIA_DRIVER, function):
            taken = {one.vfio for one in functions.values()}
            vfio = next(number for number in range(len(functions)) if number not in taken)
        functions[pci] = replace(state, driver=NVIDIA_DRIVER, bound=bindings, vfio=vfio)
        if pci in gpus and state.left_nvidia:
            gpus[pci] = replace(gpus[pci], present=True)
    machine = replace(
        machine,
        gpus=gpus,
        driver_loaded=True,
        session=machine.session + 1,
        driver_version=version or machine.driver_version,
    )
    kernel = replace(kernel, functions=functions, modules=modules, bindings=bindings)
    return replace(node, machine=machine, kernel=kernel)


def _after_load(node: Node) -> Mapping[PciAddress, GpuState]:
    # Ampere stores MIG mode on the board; later GPUs forget it when the driver is unloaded.
    lasts = node.spec.product.mig_needs_reset
    return {
        pci: replace(gpu, mig=gpu.mig.after_reset(mode_lasts=lasts)).after_load()
        for pci, gpu in node.machine.gpus.items()
    }
