"""What matters to virtual machines is read from plain files of kernel and driver, and nothing is guessed."""

import dataclasses
import os
from pathlib import Path

import pytest

from gpuctl.doctor.inside.machine_files import installed_modules, is_vgpu, kernel_seen, license_client
from gpuctl.doctor.inside.places import Places, read_places
from tests.driver.hardware.pci_trees import PciTree
from tests.gpus import PciAddress
from tests.plugin import Entry, HeldDevice

GPU = "0000:81:00.0"
ADDRESS = PciAddress.parse(GPU)


def config_space(*capabilities: bytes, listed: bool = True) -> bytes:
    """The config space of a function with these capabilities, one after the other."""
    space = bytearray(256)
    space[0x06] = 0x10 if listed else 0
    place = 0x40
    space[0x34] = place if capabilities else 0
    for number, capability in enumerate(capabilities):
        after = 0 if number == len(capabilities) - 1 else place + 0x20
        space[place : place + len(capability)] = capability
        space[place + 1] = after
        place += 0x20
    return bytes(space)


PCI_EXPRESS = bytes([0x10, 0, 0x02, 0x00, 0x00])
OF_VGPU = bytes([0x09, 0, 0x20, 0x56, 0x46])
OF_OTHERS = bytes([0x09, 0, 0x14, 0x01, 0x00])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (config_space(PCI_EXPRESS, OF_VGPU), True),
        (config_space(OF_VGPU), True),
        (config_space(PCI_EXPRESS, OF_OTHERS), False),
        (config_space(), False),
        (config_space(OF_VGPU, listed=False), False),
        (config_space(OF_VGPU)[:64], False),
        (b"", False),
        (config_space(OF_OTHERS)[:0x41] + b"\x40" + config_space(OF_OTHERS)[0x42:], False),
    ],
    ids=["vgpu", "first", "gpu", "none", "not listed", "not root", "unreadable", "a circle"],
)
def test_a_vgpu_says_so_in_its_config_space(config: bytes, expected: bool) -> None:
    assert is_vgpu(config) is expected


@pytest.fixture
def places(tmp_path: Path) -> Places:
    tree = PciTree(tmp_path / "sys")
    tree.function(GPU, driver="nvidia", group=7)
    return dataclasses.replace(read_places({}, ()), host_root=tmp_path, sysfs_root=tmp_path / "sys")


def test_what_the_kernel_shows_is_read(places: Places) -> None:
    sysfs = places.sysfs_root
    for folder in ("module/vfio/parameters", "module/vfio_iommu_type1/parameters", "class/iommu/dmar0"):
        (sysfs / folder).mkdir(parents=True)
    (sysfs / "module" / "nvidia").mkdir()
    (sysfs / "module/vfio/parameters/enable_unsafe_noiommu_mode").write_text("Y\n")
    (sysfs / "module/vfio_iommu_type1/parameters/allow_unsafe_interrupts").write_text("N\n")
    (sysfs / "bus/pci/devices" / GPU / "config").write_bytes(config_space(PCI_EXPRESS, OF_VGPU))

    found = kernel_seen(places, [], {})

    assert found.vgpus == {ADDRESS}
    assert found.iommus == ("dmar0",)
    assert found.loaded == {"vfio", "vfio_iommu_type1"}
    assert (found.without_iommu, found.unsafe_interrupts) == (True, False)


def test_what_is_offered_is_said_or_seen(places: Places) -> None:
    said = kernel_seen(dataclasses.replace(places, offers="vgpu,nonsense"), [], {})
    device = HeldDevice("gpu", "pool", "gpu-x-vfio", GPU, "", "cdi", kind="passthrough")
    entry = Entry("uid", "team", "vm", "prepared", 1, (device,))
    held = kernel_seen(places, [], {"uid": entry})

    assert said.offers == {"vgpu"}
    assert held.offers == {"passthrough"}


def test_a_gpu_with_a_driver_of_vfio_is_passed_through(places: Places) -> None:
    PciTree(places.sysfs_root).function("0000:82:00.0", driver="nvgrace_gpu_vfio_pci", group=8)

    assert kernel_seen(places, [], {}).offers == {"passthrough"}


def test_modules_are_those_of_the_running_kernel(places: Places) -> None:
    folder = places.host_root / "lib/modules" / os.uname().release
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text(
        "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/vfio.ko.xz\n"
        "kernel/drivers/vfio/vfio.ko.xz:\nkernel/drivers/net/dummy.ko:\n"
    )
    (folder / "modules.builtin").write_text("kernel/drivers/iommu/iommufd/iommufd.ko\n")

    expected = frozenset({"vfio_pci", "vfio", "iommufd"})
    assert installed_modules(folder) == expected
    assert kernel_seen(places, [], {}).installed == expected


def test_licenses_come_from_tokens_or_from_a_server(tmp_path: Path) -> None:
    container, host = tmp_path / "driver", tmp_path / "host"
    (container / "usr/bin").mkdir(parents=True)
    (container / "usr/bin/nvidia-gridd").touch()
    (host / "etc/nvidia/ClientConfigToken").mkdir(parents=True)
    (host / "etc/nvidia/ClientConfigToken/client.tok").touch()
    (host / "etc/nvidia/ClientConfigToken/README").touch()
    (host / "etc/nvidia/gridd.conf").write_text("# ServerAddress=old\n#ServerPort=7070\n")

    found = license_client([container, host])

    assert found.programs == {"nvidia-gridd"}
    assert found.servers == ("/etc/nvidia/ClientConfigToken/client.tok",)
    (host / "etc/nvidia/gridd.conf").write_text("FeatureType=4\nServerAddress = licenses.example.com\n")
    assert license_client([host]).servers[-1] == "ServerAddress in /etc/nvidia/gridd.conf"
