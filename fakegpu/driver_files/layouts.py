"""Installs all files of a driver that containers get, where distributions and driver containers put them.

The libraries are real ELF files without code: ldconfig and NVIDIA's own tools take them for the driver's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fakegpu.driver_files.elf_library import elf_library

VERSION = "580.95.05"

LIBRARIES = {
    "libEGL_nvidia.so": ("libEGL_nvidia.so.0",),
    "libGLESv1_CM_nvidia.so": ("libGLESv1_CM_nvidia.so.1",),
    "libGLESv2_nvidia.so": ("libGLESv2_nvidia.so.2",),
    "libGLX_nvidia.so": ("libGLX_nvidia.so.0",),
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
    "libcudadebugger.so": ("libcudadebugger.so.1",),
    "libnvcuvid.so": ("libnvcuvid.so.1", "libnvcuvid.so"),
    "libnvidia-allocator.so": ("libnvidia-allocator.so.1", "libnvidia-allocator.so"),
    "libnvidia-cfg.so": ("libnvidia-cfg.so.1", "libnvidia-cfg.so"),
    "libnvidia-eglcore.so": (),
    "libnvidia-encode.so": ("libnvidia-encode.so.1", "libnvidia-encode.so"),
    "libnvidia-fbc.so": ("libnvidia-fbc.so.1", "libnvidia-fbc.so"),
    "libnvidia-glcore.so": (),
    "libnvidia-glsi.so": (),
    "libnvidia-glvkspirv.so": (),
    "libnvidia-gpucomp.so": (),
    "libnvidia-ml.so": ("libnvidia-ml.so.1", "libnvidia-ml.so"),
    "libnvidia-ngx.so": ("libnvidia-ngx.so.1",),
    "libnvidia-nvvm.so": ("libnvidia-nvvm.so.4", "libnvidia-nvvm.so"),
    "libnvidia-opencl.so": ("libnvidia-opencl.so.1",),
    "libnvidia-opticalflow.so": ("libnvidia-opticalflow.so.1",),
    "libnvidia-pkcs11-openssl3.so": (),
    "libnvidia-present.so": (),
    "libnvidia-ptxjitcompiler.so": ("libnvidia-ptxjitcompiler.so.1", "libnvidia-ptxjitcompiler.so"),
    "libnvidia-rtcore.so": (),
    "libnvidia-sandboxutils.so": ("libnvidia-sandboxutils.so.1",),
    "libnvidia-tls.so": (),
    "libnvidia-vksc-core.so": ("libnvidia-vksc-core.so.1",),
    "libnvidia-vulkan-producer.so": (),
    "libnvoptix.so": ("libnvoptix.so.1",),
}
"""Library without its version -> the links to it in the same folder, of which the first is its soname."""

# Libraries whose version is not that of the driver, and their sonames.
OWN_VERSIONS = {
    "libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.20": "libnvidia-egl-wayland.so.1",
    "libnvidia-egl-xcb.so.1.0.3": "libnvidia-egl-xcb.so.1",
    "libnvidia-egl-xlib.so.1.0.3": "libnvidia-egl-xlib.so.1",
    "libnvidia-nvvm70.so.4": "",
}
_OF_32_BITS = ("libcuda.so", "libnvidia-ml.so")
# Libraries in the same folder that are not the driver's, one of them of another version.
OF_OTHERS = ("libssl.so.3", "libcuda.so.550.163.01", "libGL.so.1.7.0")
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-modprobe",
    "nvidia-xconfig",
)
FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin", "ucodes_gb10x.bin")
SHARED = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of a driver are below its root; paths have no slash at either end.

    ``xorg`` are the folders of the X.Org driver and of its GLX module, ``files`` configuration files,
    ``links`` folders that are links to others, ``sockets`` those of services on the host, and
    ``libraries_of_32_bits`` the folder of libraries for 32-bit programs.
    """

    name: str
    libraries: str
    programs: str = "usr/bin"
    firmware: str = "lib/firmware"
    xorg: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    sockets: tuple[str, ...] = ()
    libraries_of_32_bits: str = ""


def _below(folder: str, names: tuple[str, ...] = SHARED) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


LAYOUTS = (
    Layout(
        "debian",
        "usr/lib/x86_64-linux-gnu",
        xorg=("usr/lib/x86_64-linux-gnu/nvidia/xorg",),
        files=(
            *_below("usr/share"),
            "usr/share/vulkan/icd.d/nvidia_icd.json",
            "usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
            "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
            "etc/OpenCL/vendors/nvidia.icd",
        ),
        links={"lib": "usr/lib"},
        sockets=("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"),
    ),
    Layout(
        "rhel",
        "usr/lib64",
        xorg=("usr/lib64/xorg/modules/drivers", "usr/lib64/xorg/modules/extensions"),
        files=(
            *_below("usr/share"),
            "usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
            "usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
            "usr/share/X11/xorg.conf.d/10-nvidia.conf",
            "etc/OpenCL/vendors/nvidia.icd",
        ),
        links={"lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run"},
        sockets=("run/nvidia-persistenced/socket",),
        libraries_of_32_bits="usr/lib",
    ),
    Layout(
        "driver-container",
        "usr/lib/x86_64-linux-gnu",
        firmware="lib/firmware/updates",
        xorg=("usr/lib/xorg/modules/drivers", "usr/lib/xorg/modules/extensions"),
        files=(
            *_below("usr/share"),
            "etc/vulkan/icd.d/nvidia_icd.json",
            "etc/vulkan/implicit_layer.d/nvidia_layers.json",
            "etc/OpenCL/vendors/nvidia.icd",
        ),
        links={"lib": "usr/lib", "lib64": "usr/lib64"},
        sockets=("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"),
    ),
    Layout(
        "debian-alternatives",
        "usr/lib/x86_64-linux-gnu/nvidia/current",
        files=("usr/share/glvnd/egl_vendor.d/10_nvidia.json", "usr/share/vulkan/icd.d/nvidia_icd.json"),
        links={"lib": "usr/lib"},
    ),
    Layout(
        "google",
        "lib64",
        programs="bin",
        files=("vulkan/icd.d/nvidia_icd.json", "vulkan/implicit_layer.d/nvidia_layers.json"),
    ),
)
"""Packages of Debian and Ubuntu; of RHEL; a driver container of the GPU operator; Debian with alternatives;
what Google's installer puts below /home/kubernetes/bin/nvidia."""


def install_driver(root: Path, layout: Layout, version: str = VERSION) -> Path:
    """Install a driver below ``root``, which may exist; returns ``root``."""
    for name, target in layout.links.items():
        (root / target if target.startswith("usr") else root / "run").mkdir(parents=True, exist_ok=True)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    _install_libraries(root / layout.libraries, version)
    for library in _OF_32_BITS if layout.libraries_of_32_bits else ():
        # The byte after the magic number of ELF is the class: 1 for 32 bits.
        content = b"\x7fELF\x01\x01\x01" + bytes(57)
        _file(root / layout.libraries_of_32_bits / f"{library}.{version}", content)
    for name in PROGRAMS:
        program = _file(root / layout.programs / name, b"#!/bin/sh\n")
        program.chmod(0o755)
    for name in FIRMWARE:
        _file(root / layout.firmware / "nvidia" / version / name, b"not firmware\n")
    for name in layout.files:
        _file(root / name, b"{}\n")
    _install_xorg(root, layout, version)
    for name in layout.sockets:
        _listen_once(root / name)
    return root


def _install_libraries(folder: Path, version: str) -> None:
    for library, links in LIBRARIES.items():
        name = f"{library}.{version}"
        _file(folder / name, elf_library(links[0] if links else name))
        targets = (name, *links)
        for link, target in zip(links, targets, strict=False):
            (folder / link).symlink_to(target)
    for name, soname in OWN_VERSIONS.items():
        _file(folder / name, elf_library(soname or name))
        if soname:
            (folder / soname).symlink_to(name)
    for name in OF_OTHERS:
        _file(folder / name, elf_library(name))
    vdpau = f"libvdpau_nvidia.so.{version}"
    _file(folder / "vdpau" / vdpau, elf_library("libvdpau_nvidia.so.1"))
    (folder / "vdpau/libvdpau_nvidia.so.1").symlink_to(vdpau)


def _install_xorg(root: Path, layout: Layout, version: str) -> None:
    if not layout.xorg:
        return
    glx = f"libglxserver_nvidia.so.{version}"
    _file(root / layout.xorg[0] / "nvidia_drv.so", elf_library("nvidia_drv.so"))
    _file(root / layout.xorg[-1] / glx, elf_library(glx))
    (root / layout.xorg[-1] / "libglxserver_nvidia.so").symlink_to(glx)


def _listen_once(path: Path) -> None:
    """Leave the socket of a service; its file stays when the socket is closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The path of a unix socket has at most 107 bytes, and that of a test's folder may be longer. The kernel
    # follows the short path of the descriptor.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _file(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
