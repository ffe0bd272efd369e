"""The nodes of vfio are found where they are, with the NVIDIA driver and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from driver.roots.driver_roots import DriverRoots
from fakegpu.machine.capabilities import null_device
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import VfioNodes


def lay(root: Path, *paths: str) -> None:
    for path in paths:
        null_device(root / "dev" / path)


def found(nodes: VfioNodes, *, with_api: bool = True) -> list[str]:
    return [node.below_root for node in nodes.of_group(12, with_api=with_api)]


def test_the_nodes_lie_beside_those_of_the_nvidia_driver(tmp_path: Path) -> None:
    lay(tmp_path, "vfio/12", "vfio/vfio")
    nodes = VfioNodes(InstalledDriver.below(tmp_path))
    assert found(nodes) == [f"{tmp_path}/dev/vfio/12", f"{tmp_path}/dev/vfio/vfio"]
    assert found(nodes, with_api=False) == [f"{tmp_path}/dev/vfio/12"]


def test_without_an_nvidia_driver_they_lie_below_the_root_of_the_host(tmp_path: Path) -> None:
    lay(tmp_path, "vfio/12", "vfio/vfio")
    nodes = VfioNodes(InstalledDriver(DriverRoots.probed(tmp_path, tmp_path / "sys")))
    assert found(nodes) == [f"{tmp_path}/dev/vfio/12", f"{tmp_path}/dev/vfio/vfio"]


def test_a_node_that_is_missing_is_named(tmp_path: Path) -> None:
    lay(tmp_path, "vfio/vfio")
    with pytest.raises(NodeIncomplete, match="/dev/vfio/12 is missing"):
        found(VfioNodes(InstalledDriver.below(tmp_path)))


def test_iommufd_needs_the_node_of_the_iommu_and_of_every_function(tmp_path: Path) -> None:
    nodes = VfioNodes(InstalledDriver.below(tmp_path))
    lay(tmp_path, "vfio/devices/vfio0", "vfio/devices/vfio1")
    assert nodes.of_iommufd(["vfio0", "vfio1"], with_api=True) is None
    lay(tmp_path, "iommu")
    both = nodes.of_iommufd(["vfio0", "vfio1"], with_api=True)
    assert [node.path for node in both or ()] == [
        "/dev/vfio/devices/vfio0",
        "/dev/vfio/devices/vfio1",
        "/dev/iommu",
    ]
    assert nodes.of_iommufd(["vfio0", "vfio2"], with_api=True) is None
    assert nodes.of_iommufd(["vfio0", None], with_api=True) is None
    one = nodes.of_iommufd(["vfio1"], with_api=False)
    assert [node.path for node in one or ()] == ["/dev/vfio/devices/vfio1"]
