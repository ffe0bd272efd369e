"""Hosts of vGPUs as they are after a boot, when no virtual function is turned on yet."""

from pathlib import Path

from tests.gpus import MACHINES, FakeKernel, PciAddress

_LONG = 5.0


def with_virtual_off(folder: Path, machine: str) -> Path:
    """Write the machine file of a shipped host without its virtual functions into this folder."""
    lines = (MACHINES / f"{machine}.yaml").read_text().splitlines()
    cut = [
        line.partition(", virtual_functions:")[0] + "}" if ", virtual_functions:" in line else line
        for line in lines
    ]
    path = folder / f"{machine}-off.yaml"
    path.write_text("\n".join(cut) + "\n")
    return path


def turn_virtual_off(kernel: FakeKernel, sysfs: Path, gpu: PciAddress) -> None:
    """Turn the virtual functions of a GPU off, as ``sriov-manage -d`` does."""
    folder, drivers = sysfs / "bus/pci/devices" / str(gpu), sysfs / "bus/pci/drivers"
    kernel.load_module("pci-pf-stub", _LONG)
    kernel.write(folder / "driver_override", "pci-pf-stub\n", _LONG)
    kernel.write(drivers / "nvidia/unbind", str(gpu), _LONG)
    kernel.write(sysfs / "bus/pci/drivers_probe", str(gpu), _LONG)
    # The number can be written only while a driver with SR-IOV support is bound.
    kernel.write(folder / "sriov_numvfs", "0", _LONG)
    kernel.write(folder / "driver_override", "\n", _LONG)
    kernel.write(drivers / "pci-pf-stub/unbind", str(gpu), _LONG)
    kernel.write(sysfs / "bus/pci/drivers_probe", str(gpu), _LONG)
