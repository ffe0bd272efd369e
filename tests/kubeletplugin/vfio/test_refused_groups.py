"""Groups that are never bound, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.errors import ClaimBlocked, ClaimRefused, NodeIncomplete
from tests.kubeletplugin.vfio.group_scene import BOUND, GPU, GROUP, GroupScene


@pytest.fixture
def scene(tmp_path: Path) -> GroupScene:
    return GroupScene(tmp_path)


def test_without_an_iommu_group_it_is_refused(scene: GroupScene) -> None:
    (scene.tree.root / "bus/pci/devices" / GPU / "iommu_group").unlink()
    with pytest.raises(NodeIncomplete, match="no IOMMU group"):
        scene.bind()


def test_a_group_that_vfio_made_up_is_refused(scene: GroupScene) -> None:
    scene.tree.name_group(GROUP, "vfio-noiommu")
    with pytest.raises(NodeIncomplete, match="never used"):
        scene.bind()

    assert scene.kernel.writes == 0


def test_a_group_with_a_gpu_that_was_not_asked_for_is_refused(scene: GroupScene) -> None:
    other = "0000:82:00.0"
    scene.tree.function(other, group=GROUP)
    scene.kernel.takes[other] = "nvidia"
    scene.kernel.boot()
    with pytest.raises(ClaimRefused, match=f"{GPU} shares IOMMU group {GROUP} with {other}"):
        scene.bind()
    scene.bind(GPU, other)

    assert scene.drivers() == BOUND
    assert scene.kernel.driver(other) == "vfio-pci"


def test_a_gpu_with_virtual_functions_is_refused_until_they_are_gone(scene: GroupScene) -> None:
    scene.tree.virtual(GPU, 0, "0000:81:00.4")
    with pytest.raises(ClaimBlocked, match=f"{GPU} has 1 virtual functions"):
        scene.bind()
