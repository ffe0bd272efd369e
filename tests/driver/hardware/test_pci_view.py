"""What the kernel tells of GPU functions is read as it is; what it does not tell is absent."""

from pathlib import Path

import pytest

from driver.hardware.functions import NOTHING_SEEN
from driver.hardware.pci_view import pci_view
from tests.driver.hardware.pci_trees import IO_PORTS, MEMORY, MEMORY_64, PciTree, at
from tests.gpus import PciFunction, iommu_group_of, read_function

GPU, AUDIO, BRIDGE, OTHER = "0000:8a:00.0", "0000:8a:00.1", "0000:80:01.0", "0000:8b:00.0"
MIB = 2**20


@pytest.fixture
def tree(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path)


def seen(tree: PciTree) -> PciFunction:
    """The GPU's function, which is there."""
    function = read_function(tree.root, at(GPU))
    assert function is not None
    return function


def test_without_sysfs_nothing_is_seen(tmp_path: Path) -> None:
    assert pci_view(tmp_path) == NOTHING_SEEN
    assert read_function(tmp_path, at(GPU)) is None
    assert iommu_group_of(tmp_path, at(GPU)) is None


def test_only_nvidia_display_functions_are_gpus(tree: PciTree) -> None:
    tree.function(GPU, kind="0x030200")
    tree.function("0000:07:00.0", kind="0x030000")
    tree.function(AUDIO, kind="0x040300")
    tree.function("0000:91:00.0", kind="0x068000")
    tree.function("0000:03:00.0", vendor="0x1a03", kind="0x030000")
    assert [str(one.pci) for one in pci_view(tree.root).functions] == ["0000:07:00.0", GPU]


def test_a_function_is_read_with_its_driver_and_its_group(tree: PciTree) -> None:
    folder = tree.function(GPU, device="0x26b5", driver="vfio-pci", group=15)
    (folder / "numa_node").write_text("1\n")
    function = seen(tree)
    assert (function.vendor_id, function.device_id, function.class_code) == (0x10DE, 0x26B5, 0x030200)
    assert (function.driver, function.iommu_group, function.numa_node) == ("vfio-pci", 15, 1)
    assert function.pcie_root == "pci0000:80"
    assert function.is_gpu


def test_what_a_function_does_not_tell_is_absent(tree: PciTree) -> None:
    tree.function(GPU)
    function = seen(tree)
    assert (function.driver, function.iommu_group, function.numa_node) == (None, None, None)
    assert (function.addressable_bytes, function.physical, function.vfio_device) == (None, None, None)
    assert (function.virtual, function.total_virtual) == ((), 0)


def test_a_function_that_does_not_tell_what_it_is_is_none(tree: PciTree) -> None:
    (tree.function(GPU) / "device").unlink()
    assert read_function(tree.root, at(GPU)) is None


def test_only_memory_regions_of_the_function_itself_are_addressable(tree: PciTree) -> None:
    tree.function(GPU)
    own = [(16 * MIB, MEMORY), (256 * MIB, MEMORY_64), (0, 0), (32 * MIB, MEMORY_64), (0, 0), (128, IO_PORTS)]
    expansion_rom, virtual = (MIB // 2, MEMORY), (2048 * MIB, MEMORY_64)
    tree.regions(GPU, *own, expansion_rom, virtual)
    assert seen(tree).addressable_bytes == 304 * MIB


@pytest.mark.parametrize("text", ["", "0x0 0x0\n", "a b c d\n", "nonsense\n"])
def test_regions_that_cannot_be_read_are_unknown(tree: PciTree, text: str) -> None:
    (tree.function(GPU) / "resource").write_text(text)
    assert seen(tree).addressable_bytes is None


def test_a_group_holds_all_of_its_functions(tree: PciTree) -> None:
    tree.function(BRIDGE, vendor="0x8086", kind="0x060400", driver="pcieport", group=15)
    tree.function(AUDIO, kind="0x040300", driver="snd_hda_intel", group=15)
    tree.function(GPU, driver="nvidia", group=15)
    tree.function(OTHER, group=16)
    group = iommu_group_of(tree.root, at(GPU))
    assert group is not None
    assert [str(one.pci) for one in group.functions] == [BRIDGE, GPU, AUDIO]
    assert [str(one.pci) for one in group.endpoints] == [GPU, AUDIO]
    assert [str(one.pci) for one in group.gpus] == [GPU]
    assert group in pci_view(tree.root).groups


def test_a_group_that_vfio_invented_guards_nothing(tree: PciTree) -> None:
    tree.function(GPU, driver="vfio-pci", group=3)
    tree.name_group(3, "vfio-noiommu")
    assert seen(tree).iommu_group is None
    assert iommu_group_of(tree.root, at(GPU)) is None
    assert pci_view(tree.root).groups == ()


def test_virtual_functions_are_listed_by_their_numbers(tree: PciTree) -> None:
    (tree.function(GPU) / "sriov_totalvfs").write_text("32\n")
    # The tenth comes after the second, and not between the first and the second.
    for number, address in ((10, "0000:8a:02.2"), (0, "0000:8a:00.4"), (2, "0000:8a:00.6")):
        tree.virtual(GPU, number, address)
    view = pci_view(tree.root)
    physical = view.function(at(GPU))
    assert physical is not None
    assert [str(pci) for pci in physical.virtual] == ["0000:8a:00.4", "0000:8a:00.6", "0000:8a:02.2"]
    assert physical.total_virtual == 32
    assert [str(one.physical) for one in view.functions if one.physical] == [GPU] * 3
    assert view.physical == (physical,)


def test_a_vfio_device_counts_with_its_node_alone(tree: PciTree) -> None:
    folder = tree.function(GPU, driver="vfio-pci")
    (folder / "vfio-dev" / "vfio7").mkdir(parents=True)
    assert seen(tree).vfio_device is None
    (folder / "vfio-dev" / "vfio7" / "dev").write_text("511:7\n")
    assert seen(tree).vfio_device == "vfio7"


def test_iommufd_is_there_with_its_device_and_not_with_an_iommu(tree: PciTree) -> None:
    tree.function(GPU)
    (tree.root / "class" / "iommu" / "dmar0").mkdir(parents=True)
    assert not pci_view(tree.root).has_iommufd
    (tree.root / "class" / "misc" / "iommu").mkdir(parents=True)
    assert pci_view(tree.root).has_iommufd
