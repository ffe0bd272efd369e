"""Of every layout all that programs need is found, with the place that it has in the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakegpu.driver_files.layouts import LAYOUTS, OF_OTHERS, VERSION, Layout, install_driver
from kubeletplugin.devices.host.driver_files import DriverFiles, DriverRoot
from kubeletplugin.devices.host.library_files import Link

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
    places = {one.path: one.in_container for one in found(tmp_path, layout).settings}

    assert places[source] == f"/etc/vulkan/icd.d/{Path(source).name}"


def test_other_settings_keep_the_usual_places(tmp_path: Path) -> None:
    places = {one.in_container for one in found(tmp_path, "debian").settings}

    assert places >= {
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
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


def test_libraries_of_32_bits_are_left_out(tmp_path: Path) -> None:
    files = found(tmp_path, "rhel")

    assert (tmp_path / f"usr/lib/libcuda.so.{VERSION}").is_file()
    assert not [path for path in files.libraries if path.startswith("/usr/lib/")]


def test_settings_and_firmware_that_come_later_are_noticed(tmp_path: Path) -> None:
    install_driver(tmp_path, Layout("bare", "usr/lib64"))
    root = DriverRoot(tmp_path)
    before = root.files()
    assert before.settings == ()
    assert root.files() is before

    for name in ("usr/share/glvnd/egl_vendor.d/10_nvidia.json", "etc/OpenCL/vendors/nvidia.icd"):
        (tmp_path / name).parent.mkdir(parents=True)
        assert root.files().settings == before.settings
        (tmp_path / name).write_text("{}")
        before = root.files()
        assert f"/{name}" in {one.path for one in before.settings}
    (tmp_path / f"lib/firmware/nvidia/{VERSION}/gsp_new.bin").touch()
    assert f"/lib/firmware/nvidia/{VERSION}/gsp_new.bin" in root.files().firmware


def test_a_folder_that_changes_without_the_driver_leaves_the_files_as_they_were(tmp_path: Path) -> None:
    install_driver(tmp_path, BY_NAME["debian"])
    root = DriverRoot(tmp_path)
    before = root.files()

    (tmp_path / "usr/bin/vim").touch()

    assert root.files() is before, "whoever made a text of them need not make it anew"
