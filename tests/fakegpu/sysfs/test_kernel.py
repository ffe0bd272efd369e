"""What a pretended kernel does with GPUs that are in use, with faults, and across processes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from driver.nvml.pci_address import PciAddress
from fakegpu.driver_files.driver_root import build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.sysfs.kernel import FakeKernel

ALONE, SHARED, OTHER = map(PciAddress.parse, ("0000:17:00.0", "0000:ca:00.0", "0000:cb:00.0"))
LONG = 30.0


class Scene:
    """A machine, its kernel, and what a test writes."""

    def __init__(self, folder: Path) -> None:
        self.machine = FakeMachine.open("fake:passthrough-quad")
        self.sysfs = build_sysfs(folder, self.machine)
        self.kernel = FakeKernel(self.sysfs, self.machine)

    def driver(self, pci: PciAddress) -> str | None:
        link = self.sysfs / "bus/pci/devices" / str(pci) / "driver"
        return link.readlink().name if link.is_symlink() else None

    def unbind(self, pci: PciAddress) -> None:
        self.kernel.write(
            self.sysfs / "bus/pci/drivers" / (self.driver(pci) or "") / "unbind", str(pci), LONG
        )

    def rebind(self, pci: PciAddress, driver: str) -> None:
        """Have another driver take a function; the override stays."""
        if self.driver(pci) is not None:
            self.unbind(pci)
        self.kernel.write(self.sysfs / "bus/pci/devices" / str(pci) / "driver_override", f"{driver}\n", LONG)
        self.kernel.write(self.sysfs / "bus/pci/drivers_probe", str(pci), LONG)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A machine in memory, with vfio-pci loaded."""
    found = Scene(tmp_path)
    found.kernel.load_module("vfio-pci", LONG)
    return found


def test_a_session_does_not_list_what_was_bound_after_its_begin(scene: Scene) -> None:
    scene.rebind(ALONE, "vfio-pci")
    nvml = scene.machine.nvml()
    nvml.init()
    scene.rebind(ALONE, "")
    assert nvml.device_count() == 3
    nvml.shutdown()
    nvml.init()
    assert nvml.device_count() == 4
    nvml.shutdown()


def test_a_virtual_machine_keeps_other_drivers_away_from_its_group(scene: Scene) -> None:
    scene.rebind(SHARED, "vfio-pci")
    scene.unbind(OTHER)
    hold = scene.machine.open_function(SHARED)
    bind = scene.sysfs / "bus/pci/drivers/nvidia/bind"
    with pytest.raises(OSError, match="busy") as refused:
        scene.kernel.write(bind, str(OTHER), LONG)
    assert refused.value.errno == errno.EBUSY
    hold.release()
    scene.kernel.write(bind, str(OTHER), LONG)
    assert scene.driver(OTHER) == "nvidia"
