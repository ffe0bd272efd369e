"""Which place is used, and what is said of those that are passed over."""

import shutil
from pathlib import Path

import pytest

from driver.roots.places import PLACES
from driver.roots.root import Root
from fakegpu.driver_files.host_layouts import HostLayout
from tests.gpus import HOST_LAYOUTS, DriverRoots, lay_driver

CONTAINER = HOST_LAYOUTS["driver container, Ubuntu"]
UBUNTU = HOST_LAYOUTS["Ubuntu"]
GKE = HOST_LAYOUTS["GKE"]
OLD, NEW = "570.133.20", "580.95.05"


def load_module(host: Path, version: str) -> None:
    """Have the kernel say that it has this version of the driver loaded."""
    module = host / "sys/module/nvidia"
    module.mkdir(parents=True, exist_ok=True)
    (module / "version").write_text(f"{version}\n")


def reasons(host: Path) -> dict[str, str]:
    """Of each place why it is passed over, empty for the one that is used."""
    return {one.path: one.reason for one in DriverRoots.probed(host, host / "sys").look()}


def used(host: Path) -> list[str]:
    """The places that are used, of which there may be one."""
    return [path for path, reason in reasons(host).items() if not reason]


def test_without_a_driver_every_place_says_why(tmp_path: Path) -> None:
    (tmp_path / "run/nvidia/driver").mkdir(parents=True)
    (tmp_path / "opt/nvidia/lib64").mkdir(parents=True)

    found = reasons(tmp_path)

    assert list(found) == [place.path for place in PLACES]
    assert found["/run/nvidia/driver"] == "the folder is empty"
    assert found["/"] == found["/opt/nvidia"] == "no libnvidia-ml.so.1 or libcuda.so.1"
    assert found["/home/kubernetes/bin/nvidia"] == "the folder does not exist"


@pytest.mark.parametrize("layouts", [(CONTAINER, UBUNTU), (UBUNTU, GKE), (CONTAINER, GKE)])
def test_the_first_place_with_a_driver_is_used(
    tmp_path: Path, layouts: tuple[HostLayout, HostLayout]
) -> None:
    for layout in layouts:
        lay_driver(tmp_path, layout, NEW)

    assert used(tmp_path) == [layouts[0].root]
    assert reasons(tmp_path)[layouts[1].root] == f"{layouts[0].root} is used first"


def test_a_place_with_another_version_than_the_kernels_is_passed_over(tmp_path: Path) -> None:
    """A driver container that has ended may leave its files; NVML would refuse to work with them."""
    lay_driver(tmp_path, CONTAINER, OLD)
    lay_driver(tmp_path, UBUNTU, NEW)
    load_module(tmp_path, NEW)

    assert used(tmp_path) == ["/"]
    assert reasons(tmp_path)["/run/nvidia/driver"] == f"version {NEW} of the driver is loaded in the kernel"

    load_module(tmp_path, OLD)
    assert used(tmp_path) == ["/run/nvidia/driver"]

    load_module(tmp_path, "590.1.1")
    assert used(tmp_path) == []


def test_a_driver_that_is_half_there_is_not_used_and_named(tmp_path: Path) -> None:
    libraries = lay_driver(tmp_path, CONTAINER, NEW)
    for name in ("libcuda", "libnvidia-ml"):
        (libraries / f"{name}.so.{NEW}").unlink()
    folder = CONTAINER.libraries

    assert reasons(tmp_path)[CONTAINER.root] == (
        f"the driver is incomplete: /{folder}/libnvidia-ml.so.1 is a broken link"
    )

    (libraries / f"libnvidia-ml.so.{NEW}").touch()
    assert reasons(tmp_path)[CONTAINER.root] == (
        f"the driver is incomplete: /{folder}/libnvidia-ml.so.1 is empty"
    )

    (libraries / f"libcuda.so.{NEW}").write_text("whole")
    assert used(tmp_path) == [CONTAINER.root]


def test_a_library_without_a_version_proves_nothing(tmp_path: Path) -> None:
    libraries = lay_driver(tmp_path, UBUNTU, NEW)
    for path in libraries.iterdir():
        path.unlink()
    (libraries / "libcuda.so.1").write_text("a stub of a toolkit")

    assert reasons(tmp_path)["/"].endswith("libcuda.so.1 is libcuda.so.1, which has no version in its name")


def test_the_libraries_of_this_container_are_not_taken_for_the_hosts(tmp_path: Path) -> None:
    """The classic mistake: the link is absolute, and leads to a file that this process has, too."""
    ours = tmp_path / f"libcuda.so.{OLD}"
    ours.write_text("of this container")
    folder = tmp_path / "host/usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").symlink_to(ours)

    assert used(tmp_path / "host") == []

    theirs = tmp_path / "host" / str(ours).lstrip("/")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("of the host")
    roots = DriverRoots.probed(tmp_path / "host", tmp_path)
    assert roots.current().at("usr/lib64/libcuda.so.1") == theirs


def test_what_vanishes_while_it_is_looked_at_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver container's root goes while the places are looked at."""
    lay_driver(tmp_path, CONTAINER, NEW)
    followed = Root.at

    def gone_after(root: Root, path: str) -> Path | None:
        found = followed(root, path)
        if found is not None and found.is_file():
            shutil.rmtree(tmp_path / "run")
        return found

    monkeypatch.setattr(Root, "at", gone_after)
    assert reasons(tmp_path)[CONTAINER.root].startswith("the driver is incomplete")
