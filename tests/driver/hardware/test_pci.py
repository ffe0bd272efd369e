"""PCI functions in sysfs: what is there is read, what is not is None."""

from collections.abc import Callable
from pathlib import Path

import pytest

from driver.hardware import pci
from driver.hardware.pci import PRODUCTS, product_name
from tests.driver.hardware.pci_trees import PciTree
from tests.gpus import PciAddress, known_machines, load_machine

Question = Callable[["Path", PciAddress], object]
GPU = PciAddress.parse("0000:8a:00.0")


def test_without_sysfs_there_are_no_functions_and_nothing_is_known(tmp_path: Path) -> None:
    assert pci.numa_node(tmp_path, GPU) is None
    assert pci.pcie_root(tmp_path, GPU) is None
    assert pci.bound_driver(tmp_path, GPU) is None
    assert pci.drm_nodes(tmp_path, GPU) == ()


BRIDGE = "devices/pci0000:80/0000:80:01.0"
SWITCH = f"{BRIDGE}/0000:81:00.0/0000:82:04.0"


@pytest.mark.parametrize(
    ("question", "file", "text", "answer"),
    [
        *(
            (pci.numa_node, "numa_node", *one)
            for one in (("3\n", 3), ("0\n", 0), ("-1\n", None), ("x", None))
        ),
        (pci.numa_node, "numa_node", "", None),
        (pci.local_cpus, "local_cpulist", "0-55,112-167\n", "0-55,112-167"),
        (pci.local_cpus, "local_cpulist", "3\n", "3"),
        (pci.local_cpus, "local_cpulist", "\n", None),
        (pci.local_cpus, "local_cpulist", "0-5;x", None),
    ],
)
def test_what_a_file_says_is_read_or_unknown(
    tmp_path: Path, question: Question, file: str, text: str, answer: object
) -> None:
    (PciTree(tmp_path).function(str(GPU)) / file).write_text(text)
    assert question(tmp_path, GPU) == answer


@pytest.mark.parametrize(
    ("above", "root", "switches"),
    [
        (BRIDGE, "pci0000:80", ()),
        ("devices/pci0000:80", "pci0000:80", ()),
        ("devices/pci10000:e0/10000:e0:01.0", "pci10000:e0", ()),
        ("devices/platform/soc/pci0000:80", None, ()),
        ("elsewhere/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:04.0", None, ()),
        (SWITCH, "pci0000:80", ("81:00.0",)),
        (f"{SWITCH}/0000:83:00.0/0000:84:01.0", "pci0000:80", ("81:00.0", "82:04.0", "83:00.0")),
    ],
)
def test_root_and_switches_are_what_lies_above_the_function(
    tmp_path: Path, above: str, root: str | None, switches: tuple[str, ...]
) -> None:
    PciTree(tmp_path).function(str(GPU), above=above)
    assert (pci.pcie_root(tmp_path, GPU), pci.pcie_switches(tmp_path, GPU)) == (root, switches)


def test_a_link_to_another_function_gives_no_root(tmp_path: Path) -> None:
    PciTree(tmp_path).function(str(GPU))
    link = tmp_path / "bus/pci/devices/0000:8a:00.0"
    link.unlink()
    link.symlink_to("../../../devices/pci0000:80/0000:80:01.0/0000:8b:00.0")
    assert pci.pcie_root(tmp_path, GPU) is None


def test_the_bound_driver_is_named(tmp_path: Path) -> None:
    PciTree(tmp_path).function(str(GPU), driver="vfio-pci")
    assert pci.bound_driver(tmp_path, GPU) == "vfio-pci"


def test_only_card_and_render_nodes_are_drm_nodes(tmp_path: Path) -> None:
    device = PciTree(tmp_path).function(str(GPU))
    for name in ("renderD130", "card2", "controlD66", "card2-DP-1", "version"):
        (device / "drm" / name).mkdir(parents=True)
    assert pci.drm_nodes(tmp_path, GPU) == ("card2", "renderD130")


@pytest.mark.parametrize("machine", known_machines())
def test_the_table_agrees_with_the_machines(machine: str) -> None:
    product = load_machine(machine).product
    if product.virtualization != "vgpu":  # a guest is named after its vGPU
        assert product.name in PRODUCTS.get(product.device_id, (product.name,))


def test_a_name_is_told_where_it_is_certain() -> None:
    assert product_name(0x26B9) == "NVIDIA L40S"
    assert product_name(0x20B0) is None
    assert product_name(0x0001) is None
