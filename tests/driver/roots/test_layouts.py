"""A driver is found in every layout, and containers get its files where their linker looks for them."""

from pathlib import Path, PurePosixPath

import pytest

from driver.roots.places import PLACES
from driver.roots.root import below
from fakegpu.driver_files.host_layouts import HostLayout
from tests.gpus import HOST_LAYOUTS, DriverRoots, lay_driver
from tests.plugin import DriverFiles, DriverPrograms, HostPaths, InstalledDriver

VERSION = "580.95.05"

every_layout = pytest.mark.parametrize("layout", HOST_LAYOUTS.values(), ids=list(HOST_LAYOUTS))


class Host:
    """A pretend host with a driver, whose root this process sees at ``folder``."""

    def __init__(self, folder: Path, layout: HostLayout) -> None:
        self.folder = folder
        self.libraries = lay_driver(folder, layout, VERSION)
        self.roots = DriverRoots.probed(folder, folder / "sys")
        self.driver = InstalledDriver(self.roots)

    @property
    def files(self) -> DriverFiles:
        """The driver's files."""
        return self.driver.now().files()

    def on_host(self, path: str) -> str:
        """The host's path of a file that containers have at this path."""
        root = self.driver.now().root
        host = HostPaths(root.seen, root.on_host, self.folder)
        return host.below_root(self.files.below_root(path))

    def content(self, path: str) -> str:
        """What the container runtime, which runs on the host, finds for this path of containers."""
        there = below(self.folder, self.on_host(path))
        assert there is not None
        return there.read_text()


@every_layout
def test_the_driver_is_found_with_its_version(tmp_path: Path, layout: HostLayout) -> None:
    host = Host(tmp_path, layout)

    (used,) = [one for one in host.roots.look() if not one.reason]
    assert (used.path, used.version) == (layout.root, VERSION)
    assert str(host.roots.current().on_host) == (layout.real_root or layout.root)
    assert host.files.version == VERSION


@every_layout
def test_containers_get_the_libraries_where_their_linker_looks(tmp_path: Path, layout: HostLayout) -> None:
    host = Host(tmp_path, layout)

    assert set(host.files.library_folders) == {layout.container_libraries}
    for library in host.files.libraries:
        name = PurePosixPath(library).name
        assert host.content(library) == f"{name.partition('.so')[0]} {VERSION}\n"
    links = {PurePosixPath(link.path) for link in host.files.links}
    assert PurePosixPath(layout.container_libraries, "libcuda.so.1") in links


@every_layout
def test_nvidia_smi_is_found_by_the_host_and_by_this_process(tmp_path: Path, layout: HostLayout) -> None:
    host = Host(tmp_path / "host", layout)

    assert host.files.binaries == (f"{layout.container_programs}/nvidia-smi",)
    assert host.content(host.files.binaries[0]) == "#!/bin/sh\n"
    program = DriverPrograms(host.driver, tmp_path / "links").find("nvidia-smi")
    assert program.path.read_text() == "#!/bin/sh\n"
    found = [Path(folder, "libcuda.so.1") for folder in program.environment["LD_LIBRARY_PATH"].split(":")]
    assert found[0].read_text() == f"libcuda {VERSION}\n"


def test_every_place_has_a_layout_that_is_tried() -> None:
    tried = {layout.root for layout in HOST_LAYOUTS.values()}
    # The other architecture of Bottlerocket has the same layout.
    assert {place.path.replace("aarch64", "x86_64") for place in PLACES} == tried


@pytest.mark.parametrize("layout", [one for one in HOST_LAYOUTS.values() if not one.real_root])
def test_a_root_that_is_named_gives_the_same_files(tmp_path: Path, layout: HostLayout) -> None:
    host = Host(tmp_path, layout)
    named = InstalledDriver.below(tmp_path / layout.root.lstrip("/"), Path(layout.root))

    assert named.now().files().libraries == host.files.libraries
    assert named.now().files().links == host.files.links
