"""What sysfs shows of the vGPUs of a host is read as it is, in both frameworks."""

from pathlib import Path

from driver.hardware.vgpu_places import creatable_on, read_vgpu_host
from tests.driver.hardware.pci_trees import PciTree
from tests.gpus import MadeVgpu, PciAddress, made_on

PHYSICAL, VIRTUAL = "0000:8a:00.0", "0000:8a:00.4"
UUID = "aa618089-8b16-4d01-a136-25a0f3c73123"
GPU, PLACE = PciAddress.parse(PHYSICAL), PciAddress.parse(VIRTUAL)

TABLE = "ID    : vGPU Name\n1152  : NVIDIA L40S-8Q\n1155  : NVIDIA L40S-24Q\n"
"""As NVIDIA's module writes ``creatable_vgpu_types``."""


def with_virtual_function(root: Path) -> Path:
    tree = PciTree(root)
    tree.function(PHYSICAL)
    return tree.virtual(PHYSICAL, 0, VIRTUAL)


def vendor(root: Path, current: str, table: str = TABLE) -> None:
    folder = with_virtual_function(root) / "nvidia"
    folder.mkdir()
    (folder / "current_vgpu_type").write_text(current)
    (folder / "creatable_vgpu_types").write_text(table)


def mdev_type(folder: Path, number: int, available: str) -> None:
    kind = folder / "mdev_supported_types" / f"nvidia-{number}"
    kind.mkdir(parents=True)
    (kind / "available_instances").write_text(f"{available}\n")


def test_a_virtual_function_without_a_type_has_no_vgpu(tmp_path: Path) -> None:
    vendor(tmp_path, "0\n")

    host = read_vgpu_host(tmp_path, GPU, ())

    assert host.framework == "vendor-vfio"
    assert [(place.pci, place.made) for place in host.places] == [(PLACE, ())]


def test_a_virtual_function_with_a_type_has_its_vgpu(tmp_path: Path) -> None:
    vendor(tmp_path, "1152\n", "ID    : vGPU Name\n")

    assert made_on(tmp_path, PLACE) == (MadeVgpu(1152),)
    assert creatable_on(tmp_path, PLACE) == frozenset()


def test_a_mediated_device_is_told_by_its_uuid_and_the_link_to_its_type(tmp_path: Path) -> None:
    folder = with_virtual_function(tmp_path)
    mdev_type(folder, 468, "0")
    mdev_type(folder, 471, "1")
    (folder / UUID).mkdir()
    (folder / UUID / "mdev_type").symlink_to("../mdev_supported_types/nvidia-468")

    host = read_vgpu_host(tmp_path, GPU, ())

    assert host.framework == "mdev"
    assert host.made == (MadeVgpu(468, UUID),)
    assert creatable_on(tmp_path, PLACE) == {471}


def test_without_sriov_mediated_devices_lie_on_the_gpu(tmp_path: Path) -> None:
    folder = PciTree(tmp_path).function(PHYSICAL)
    mdev_type(folder, 320, "4")

    host = read_vgpu_host(tmp_path, GPU, ())

    assert host.is_on(GPU)
    for slot in (0, 7):
        place = host.place(GPU, slot)
        assert place is not None
        assert place.pci == GPU
