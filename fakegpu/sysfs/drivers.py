"""Which kernel drivers there are on a fake machine, their modules, and which of them take which function."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.vgpu_types import Framework
from fakegpu.sysfs.functions import BRIDGE_CLASS, GPU_CLASS, NVIDIA, Function, functions_of

VFIO_PCI = "vfio-pci"
PF_STUB = "pci-pf-stub"
NVIDIA_DRIVER = "nvidia"
_BUILT_IN = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """One PCI driver and its module, empty for a built-in driver.

    ``classes`` are the PCI classes that it binds by itself. A driver of vfio binds only functions
    whose ``driver_override`` names it. ``device_ids`` are what the aliases of such a driver's module name.
    With ``makes_virtual`` it has ``sriov_configure``, so that writing ``sriov_numvfs`` makes virtual
    functions.
    """

    name: str
    module: str
    classes: tuple[int, ...] = ()
    is_vfio: bool = False
    device_ids: tuple[int, ...] = ()
    makes_virtual: bool = False


_DRIVERS = (
    Driver("pcieport", _BUILT_IN, (BRIDGE_CLASS,)),
    Driver(NVIDIA_DRIVER, "nvidia", (GPU_CLASS,)),
    Driver("snd_hda_intel", "snd_hda_intel", (0x040300,)),
    Driver("xhci_hcd", "xhci_pci", (0x0C0330,)),
    Driver("nvidia-gpu", "i2c_nvidia_gpu", (0x0C8000,)),
    Driver(VFIO_PCI, "vfio_pci", is_vfio=True),
    # It takes any function whose driver_override names it, and only makes virtual functions (pci-pf-stub.c).
    Driver(PF_STUB, "pci_pf_stub", makes_virtual=True),
)

_NEEDS = {
    "vfio_pci": ("vfio_pci_core", "vfio", "vfio_iommu_type1"),
    "vfio_iommu_type1": ("vfio",),
    "nvidia_vgpu_vfio": ("vfio",),
}


def vgpu_framework(spec: MachineSpec) -> Framework | None:
    """The framework by which the machine's driver makes vGPUs; None unless it is the vGPU manager."""
    return spec.product.vgpu.framework if spec.product.vgpu is not None else None


def drivers_of(spec: MachineSpec) -> Iterator[Driver]:
    """All drivers that the machine's kernel has, loaded or not."""
    yield from _DRIVERS
    for name, device_ids in spec.iommu.variant_drivers:
        yield Driver(name, name.replace("-", "_"), is_vfio=True, device_ids=device_ids)


def loaded_drivers(spec: MachineSpec, modules: Collection[str]) -> list[Driver]:
    """The drivers that are built in, or whose modules are loaded."""
    return [one for one in drivers_of(spec) if one.module == _BUILT_IN or one.module in modules]


def driver_named(spec: MachineSpec, name: str | None) -> Driver | None:
    """The driver of a name, loaded or not."""
    return next((one for one in drivers_of(spec) if one.name == name), None)


def is_vfio(spec: MachineSpec, name: str | None) -> bool:
    """Whether a driver gives functions to virtual machines by vfio."""
    found = driver_named(spec, name)
    return found is not None and found.is_vfio


def has_vfio_device(spec: MachineSpec, driver_name: str | None, function: Function) -> bool:
    """Whether a function has a vfio device while this driver is bound to it."""
    # In the vendor-specific framework NVIDIA's own module registers the virtual functions with vfio.
    by_nvidia = driver_name == NVIDIA_DRIVER and function.physical is not None
    return is_vfio(spec, driver_name) or (by_nvidia and vgpu_framework(spec) == "vfio")


def modules_at_boot(spec: MachineSpec) -> tuple[str, ...]:
    """The modules that udev loads for the machine's functions, and the vGPU manager's."""
    classes = {one.class_code for one in functions_of(spec).values()}
    names = [one.module for one in _DRIVERS if one.module and classes & set(one.classes)]
    if vgpu_framework(spec) is not None:
        names += with_needs(spec, "nvidia_vgpu_vfio")
        names += ["mdev"] if vgpu_framework(spec) == "mdev" else []
    return tuple(dict.fromkeys(names))


def with_needs(spec: MachineSpec, module: str) -> list[str]:
    """The modules that modprobe loads for a module, itself last; FileNotFoundError for an unknown module."""
    known = {one.module for one in drivers_of(spec)} - {_BUILT_IN}
    known |= {*_NEEDS, "vfio", "vfio_pci_core", "mdev"} | ({"iommufd"} if spec.iommu.iommufd else set())
    if module not in known:
        raise FileNotFoundError(errno.ENOENT, "there is no such module", module)
    needs = list(_NEEDS.get(module, ()))
    if any(one.module == module and one.is_vfio for one in drivers_of(spec)):
        needs = list(_NEEDS["vfio_pci"])
    if "vfio" in (*needs, module) and spec.iommu.iommufd:
        needs.append("iommufd")
    return [*needs, module]


def matches(driver: Driver, function: Function, override: str) -> bool:
    """Whether the PCI bus lets a driver try a function (pci_match_device of the kernel)."""
    # With driver_override only the driver of that name matches, whatever ids it has.
    if override:
        return override == driver.name
    # vfio-pci has no ids of its own, and those of variant drivers count only with driver_override.
    if driver.is_vfio:
        return False
    ours = driver.name in {NVIDIA_DRIVER, "nvidia-gpu"}
    return function.class_code in driver.classes and (not ours or function.vendor_id == NVIDIA)


def refusal(spec: MachineSpec, driver: Driver, function: Function, virtual: int) -> int:
    """The errno with which the driver's probe fails for a function; 0 if it succeeds.

    ``virtual`` is how many virtual functions the function has.
    """
    if driver.makes_virtual:
        return 0
    if not driver.is_vfio:
        # The NVIDIA driver binds virtual functions only as the vGPU manager.
        taken = function.physical is None or vgpu_framework(spec) is not None
        return 0 if taken and function.class_code in driver.classes else errno.ENODEV
    # vfio_pci_core accepts only functions with a normal PCI header, and a bridge has another.
    if function.is_bridge:
        return errno.EINVAL
    # vfio_group_find_or_alloc finds no group.
    if not spec.iommu.present and not spec.iommu.unsafe_noiommu:
        return errno.EINVAL
    if function.physical is not None and vgpu_framework(spec) == "vfio":
        return errno.EINVAL
    # vfio_pci_core refuses a physical function whose virtual functions are enabled: they may be in use.
    if virtual:
        return errno.EBUSY
    return 0


def first_driver(
    spec: MachineSpec, function: Function, override: str, modules: Collection[str]
) -> str | None:
    """The loaded driver that binds a function when the bus looks for one; None if no driver does."""
    for driver in loaded_drivers(spec, modules):
        if matches(driver, function, override) and not refusal(spec, driver, function, virtual=0):
            return driver.name
    return None
