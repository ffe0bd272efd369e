"""What a pretended kernel does with GPUs that are in use, with faults, and across processes."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from driver.nvml.pci_address import PciAddress
from fakegpu.driver_files.driver_root import build_driver_root, build_sysfs
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.sysfs.kernel import FakeKernel
from tests.fakegpu.sysfs.trees import disagreements

ALONE, BESIDE, SHARED, OTHER = (
    PciAddress.parse(text) for text in ("0000:17:00.0", "0000:65:00.0", "0000:ca:00.0", "0000:cb:00.0")
)
LONG, AT_ONCE = 30.0, 0.0


class Scene:
    """A machine on disk or in memory, its kernel, and what a test writes."""

    def __init__(self, folder: Path, machine: str = "passthrough-quad", *, on_disk: bool = False) -> None:
        self.flag = f"fake:{machine}@{folder / 'state.json'}" if on_disk else f"fake:{machine}"
        self.machine = FakeMachine.open(self.flag)
        self.root = build_driver_root(folder / "driver", self.machine)
        self.sysfs = build_sysfs(folder, self.machine)
        self.kernel = FakeKernel(self.sysfs, self.machine)

    def driver(self, pci: PciAddress) -> str | None:
        link = self.sysfs / "bus/pci/devices" / str(pci) / "driver"
        return link.readlink().name if link.is_symlink() else None

    def unbind(self, pci: PciAddress, deadline_seconds: float = LONG) -> None:
        file = self.sysfs / "bus/pci/drivers" / (self.driver(pci) or "") / "unbind"
        self.kernel.write(file, str(pci), deadline_seconds)

    def rebind(self, pci: PciAddress, driver: str) -> None:
        """Have another driver take a function; the override stays."""
        if self.driver(pci) is not None:
            self.unbind(pci)
        self.kernel.write(self.sysfs / "bus/pci/devices" / str(pci) / "driver_override", f"{driver}\n", LONG)
        self.kernel.write(self.sysfs / "bus/pci/drivers_probe", str(pci), LONG)

    def dev(self) -> set[str]:
        """What lies in the driver root's /dev."""
        return {path.relative_to(self.root / "dev").as_posix() for path in (self.root / "dev").rglob("*")}

    def agrees(self) -> bool:
        return disagreements(self.machine, self.sysfs, self.root) == []


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A machine in memory, with vfio-pci loaded."""
    found = Scene(tmp_path)
    found.kernel.load_module("vfio-pci", LONG)
    return found


def test_a_gpu_that_leaves_the_nvidia_driver_vanishes_and_comes_back_with_another_minor(scene: Scene) -> None:
    before = scene.machine.state.gpus[ALONE].minor
    scene.rebind(ALONE, "vfio-pci")
    assert ALONE not in scene.machine.state.listed()
    assert not {f"nvidia{before}", f"dri/by-path/pci-{ALONE}-card"} & scene.dev()
    assert {"vfio/vfio", "vfio/24", "vfio/devices/vfio0", "iommu"} <= scene.dev()
    assert scene.agrees()

    scene.rebind(ALONE, "")
    assert scene.driver(ALONE) == "nvidia"
    assert scene.machine.state.gpus[ALONE].minor not in {before, 1, 2, 3}
    assert scene.agrees()


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
