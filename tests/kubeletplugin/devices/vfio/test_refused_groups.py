"""Groups that are never bound, and why; the driver that says most about a function is taken."""

from pathlib import Path

import pytest

from kubeletplugin.devices.vfio.modules import best_module, parse_aliases, read_aliases
from tests.gpus import ClaimBlocked, ClaimRefused, NodeIncomplete
from tests.kubeletplugin.devices.vfio.group_scene import BOUND, GPU, GROUP, OWN_DRIVERS, GroupScene

DISK = "0000:83:00.0"


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


def add_disk(scene: GroupScene, driver: str) -> None:
    """Put an NVMe disk into the group, as after a change of the machine's slots."""
    scene.tree.function(DISK, "0x144d", "0xa80a", "0x010802", group=GROUP)
    if driver:
        scene.kernel.takes[DISK] = driver
    scene.kernel.boot()


def test_a_group_with_a_disk_that_works_is_refused_and_nothing_is_touched(scene: GroupScene) -> None:
    add_disk(scene, "nvme")
    with pytest.raises(ClaimBlocked, match=rf"{DISK} \(nvme\), which the node would lose"):
        scene.bind()

    assert scene.kernel.writes == 0
    assert scene.kernel.driver(DISK) == "nvme"
    assert scene.drivers() == OWN_DRIVERS


def test_a_disk_without_a_driver_goes_with_the_group_and_comes_back(scene: GroupScene) -> None:
    add_disk(scene, "")
    scene.bind()
    assert scene.kernel.driver(DISK) == "vfio-pci"

    scene.restore()
    assert scene.kernel.driver(DISK) == ""


def test_a_disk_that_works_since_vfio_was_loaded_is_refused(
    scene: GroupScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_disk(scene, "")
    load = scene.kernel.load_module

    def load_both(name: str, deadline_seconds: float) -> None:
        load(name, deadline_seconds)
        scene.kernel.give(DISK, "nvme")

    monkeypatch.setattr(scene.kernel, "load_module", load_both)
    with pytest.raises(ClaimBlocked, match="which the node would lose"):
        scene.bind()

    assert scene.kernel.driver(DISK) == "nvme"
    assert scene.drivers() == OWN_DRIVERS


GRACE = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"
HOPPER = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
MODULES_ALIAS = """\
# Aliases extracted from modules themselves.
alias pci:v000010DEd*sv*sd*bc03sc02i* nvidia
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v000010DEd*sv*sd*bc03sc*i* some-gpu-vfio-pci
alias fs-9p 9p
"""


@pytest.mark.parametrize(
    ("modalias", "module"),
    [
        (GRACE, "nvgrace_gpu_vfio_pci"),
        (HOPPER, "some-gpu-vfio-pci"),
        ("pci:v00008086d00001D1Fsv00008086sd00000000bc06sc04i00", "vfio_pci"),
        (None, "vfio_pci"),
        ("nonsense", "vfio_pci"),
    ],
)
def test_the_alias_that_says_most_decides(modalias: str | None, module: str) -> None:
    assert best_module(parse_aliases(MODULES_ALIAS), modalias) == module
    assert best_module((), modalias) == "vfio_pci", "a kernel that names no modules"


@pytest.mark.parametrize("folder", ["lib/modules/6.8.0", "usr/lib/modules/6.8.0"])
def test_the_aliases_are_those_of_the_running_kernel(tmp_path: Path, folder: str) -> None:
    for release, text in ((folder, MODULES_ALIAS), (f"{folder}-old", "alias vfio_pci:v* old\n")):
        (tmp_path / release).mkdir(parents=True)
        (tmp_path / release / "modules.alias").write_text(text)

    assert read_aliases(tmp_path, "6.8.0") == parse_aliases(MODULES_ALIAS)
