"""The driver's files are found below any root, complete, and looked for again when they change."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from driver.errors import NodeIncomplete
from kubeletplugin.devices.host.driver_files import DriverRoot
from kubeletplugin.devices.host.library_files import Link

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


def test_binaries_firmware_sockets_and_the_hook_are_found(tmp_path: Path) -> None:
    install(tmp_path, "580.65.06", "usr/lib64")
    for name in (
        "usr/bin/nvidia-smi",
        "usr/bin/nvidia-cdi-hook",
        "lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listening = socket.socket(socket.AF_UNIX)
    (tmp_path / "run/nvidia-persistenced").mkdir(parents=True)
    listening.bind(str(tmp_path / "run/nvidia-persistenced/socket"))
    listening.close()

    files = DriverRoot(tmp_path).files()

    assert files.binaries == ("/usr/bin/nvidia-smi",)
    assert files.hook == "/usr/bin/nvidia-cdi-hook"
    assert files.firmware == ("/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",)
    assert files.sockets == ("/run/nvidia-persistenced/socket",)


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


def test_a_folder_reached_by_two_names_is_taken_once(tmp_path: Path) -> None:
    install(tmp_path, "580.65.06")
    (tmp_path / "lib").symlink_to("usr/lib")

    assert len(DriverRoot(tmp_path).files().libraries) == 2


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
    (tmp_path / "lib/firmware/nvidia/580.65.06").mkdir(parents=True)
    (tmp_path / "lib/firmware/nvidia/580.65.06/gsp_tu10x.bin").touch()
    assert root.files().firmware == ("/lib/firmware/nvidia/580.65.06/gsp_tu10x.bin",)


def test_an_upgrade_is_noticed_without_a_restart(tmp_path: Path) -> None:
    root = DriverRoot(tmp_path)
    with pytest.raises(NodeIncomplete):
        root.files()
    install(tmp_path, "550.163.01")
    before = root.files()
    assert root.files() is before, "nothing changed, so nothing is looked for"

    install(tmp_path, "580.65.06")

    assert root.files().version == "580.65.06"
