"""The driver's files are found below any root, complete, and looked for again when they change."""

from pathlib import Path

import pytest

from fakegpu.driver_files.layouts import LAYOUTS, OF_OTHERS, VERSION, Layout, install_driver
from kubeletplugin.devices.host.driver_files import DriverRoot
from kubeletplugin.devices.host.library_files import Link
from tests.gpus import NodeIncomplete
from tests.plugin import DriverFiles

LIB = "usr/lib/x86_64-linux-gnu"


def install(root: Path, version: str, folder: str = LIB) -> None:
    libraries = root / folder
    libraries.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        (libraries / f"{name}.{version}").write_text("library")
        link = libraries / f"{name}.1"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{name}.{version}")


def test_libraries_of_the_version_in_use_are_found_with_their_links(tmp_path: Path) -> None:
    install(tmp_path, "550.163.01")
    install(tmp_path, "580.65.06")
    folder = tmp_path / LIB
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libnvidia-egl-gbm.so.1.1.2").touch()
    (folder / "libssl.so.3").touch()
    (folder / "vdpau").mkdir()
    (folder / "vdpau/libvdpau_nvidia.so.580.65.06").touch()

    files = DriverRoot(tmp_path).files()

    assert files.version == "580.65.06"
    assert files.libraries == (
        f"/{LIB}/libcuda.so.580.65.06",
        f"/{LIB}/libnvidia-egl-gbm.so.1.1.2",
        f"/{LIB}/libnvidia-ml.so.580.65.06",
        f"/{LIB}/vdpau/libvdpau_nvidia.so.580.65.06",
    )
    assert files.links == (
        Link(f"/{LIB}/libcuda.so.1", "libcuda.so.580.65.06", f"/{LIB}/libcuda.so.580.65.06"),
        Link(f"/{LIB}/libnvidia-ml.so.1", "libnvidia-ml.so.580.65.06", f"/{LIB}/libnvidia-ml.so.580.65.06"),
        Link(f"/{LIB}/libcuda.so", "libcuda.so.1", f"/{LIB}/libcuda.so.580.65.06"),
    )
    assert files.main_folders == (f"/{LIB}",)
    assert files.library_folders == (f"/{LIB}", f"/{LIB}/vdpau")


def test_containers_get_the_program_that_a_script_of_the_host_starts(tmp_path: Path) -> None:
    install(tmp_path, "580.65.06")
    for name, content in (
        ("usr/bin/nvidia-smi", b"#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi"),
        ("usr/local/nvidia/bin/nvidia-smi", b"\x7fELF"),
        ("usr/bin/nvidia-debugdump", b"#!/bin/sh\necho nothing else has this name"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)

    files = DriverRoot(tmp_path).files()

    assert files.binaries == ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-debugdump")
    assert files.below_root("/usr/bin/nvidia-smi") == "/usr/bin/nvidia-smi", "the host runs the script"
    assert [files.mounted(path) for path in files.binaries] == [
        "/usr/local/nvidia/bin/nvidia-smi",
        "/usr/bin/nvidia-debugdump",
    ]


def test_the_hook_of_the_driver_is_found(tmp_path: Path) -> None:
    install(tmp_path, "580.65.06", "usr/lib64")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-cdi-hook").touch()

    assert DriverRoot(tmp_path).files().hook == "/usr/bin/nvidia-cdi-hook"


def test_no_driver_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(NodeIncomplete, match=r"no NVIDIA driver library .* set --driver-root.*\(retryable\)"):
        DriverRoot(tmp_path).files()


def test_a_folder_that_comes_later_is_noticed(tmp_path: Path) -> None:
    install(tmp_path, "580.65.06")
    root = DriverRoot(tmp_path)
    assert root.files().binaries == ()

    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").touch()
    assert root.files().binaries == ("/usr/bin/nvidia-smi",)
    (tmp_path / LIB / "vdpau").mkdir()
    (tmp_path / LIB / "vdpau/libvdpau_nvidia.so.580.65.06").touch()
    assert f"/{LIB}/vdpau/libvdpau_nvidia.so.580.65.06" in root.files().libraries
    for name in ("usr/share/glvnd/egl_vendor.d/10_nvidia.json", "etc/OpenCL/vendors/nvidia.icd"):
        (tmp_path / name).parent.mkdir(parents=True)
        root.files()
        (tmp_path / name).write_text("{}")
        assert f"/{name}" in {one.path for one in root.files().settings}
    (tmp_path / "lib/firmware/nvidia/580.65.06").mkdir(parents=True)
    (tmp_path / "lib/firmware/nvidia/580.65.06/gsp_tu10x.bin").touch()
    assert root.files().firmware == ("/lib/firmware/nvidia/580.65.06/gsp_tu10x.bin",)
    before = root.files()
    (tmp_path / "usr/bin/vim").touch()
    assert root.files() is before, "whoever made a text of them need not make it anew"


def test_an_upgrade_is_noticed_without_a_restart(tmp_path: Path) -> None:
    root = DriverRoot(tmp_path)
    with pytest.raises(NodeIncomplete):
        root.files()
    install(tmp_path, "550.163.01")
    before = root.files()
    assert root.files() is before, "nothing changed, so nothing is looked for"

    install(tmp_path, "580.65.06")

    assert root.files().version == "580.65.06"


BY_NAME = {layout.name: layout for layout in LAYOUTS}


def found(folder: Path, name: str) -> DriverFiles:
    return DriverRoot(install_driver(folder, BY_NAME[name])).files()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_driver_is_found_whole_in_every_layout(layout: Layout, tmp_path: Path) -> None:
    files = found(tmp_path, layout.name)

    assert files.version == VERSION
    assert len(files.libraries) == 36, "30 of the version, vdpau's, and 5 with versions of their own"
    assert not {f"/{layout.libraries}/{name}" for name in OF_OTHERS} & set(files.libraries)
    assert files.main_folders == (f"/{layout.libraries}",)
    assert [Path(path).name for path in files.firmware] == [
        "gsp_ga10x.bin",
        "gsp_tu10x.bin",
        "ucodes_gb10x.bin",
    ]
    assert [path for path in files.sockets if path.lstrip("/") in layout.sockets] == list(files.sockets)
    assert len(files.sockets) == len(layout.sockets)
    assert len(files.settings) == len(layout.files)
    assert len(files.modules) == (2 if layout.xorg else 0)
    assert {Path(path).name for path in files.binaries} >= {"nvidia-smi", "nvidia-xconfig"}
    assert not {Path(path).name for path in files.binaries} & {"nvidia-modprobe"}


@pytest.mark.parametrize(
    ("layout", "source"),
    [
        ("debian", "/usr/share/vulkan/icd.d/nvidia_icd.json"),
        ("rhel", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"),
        ("driver-container", "/etc/vulkan/icd.d/nvidia_icd.json"),
        ("google", "/vulkan/icd.d/nvidia_icd.json"),
    ],
)
def test_vulkan_is_in_etc_of_the_container_wherever_the_host_has_it(
    layout: str, source: str, tmp_path: Path
) -> None:
    files = found(tmp_path, layout)
    places = {one.path: one.in_container for one in files.settings}

    assert places[source] == f"/etc/vulkan/icd.d/{Path(source).name}"
    if layout == "rhel":
        assert (tmp_path / f"usr/lib/libcuda.so.{VERSION}").is_file()
        assert not [path for path in files.libraries if path.startswith("/usr/lib/")], "they have 32 bits"
    if layout == "debian":
        assert set(places.values()) >= {
            "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "/usr/share/nvidia/nvoptix.bin",
            "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
            "/etc/OpenCL/vendors/nvidia.icd",
        }


def test_links_that_programs_need_are_made_on_a_host_that_lacks_them_too(tmp_path: Path) -> None:
    install_driver(tmp_path, BY_NAME["rhel"])
    (tmp_path / "usr/lib64/libcuda.so").unlink()

    links = {link.path: link for link in DriverRoot(tmp_path).files().links}

    cuda = f"/usr/lib64/libcuda.so.{VERSION}"
    assert links["/usr/lib64/libcuda.so"] == Link("/usr/lib64/libcuda.so", "libcuda.so.1", cuda)
    assert links["/usr/lib64/libGLX_indirect.so.0"].target == f"libGLX_nvidia.so.{VERSION}"
    assert links["/usr/lib64/libnvidia-opticalflow.so"].target == "libnvidia-opticalflow.so.1"
    gbm = links["/usr/lib64/gbm/nvidia-drm_gbm.so"]
    assert (gbm.target, gbm.file) == (
        "../libnvidia-allocator.so.1",
        f"/usr/lib64/libnvidia-allocator.so.{VERSION}",
    )
    glx = "/usr/lib64/xorg/modules/extensions/libglxserver_nvidia.so"
    assert links[glx].file == f"{glx}.{VERSION}"
