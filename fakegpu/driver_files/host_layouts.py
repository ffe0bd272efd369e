"""Installs an NVIDIA driver below the root of a pretend host, where each distribution or installer puts it.

Only the files that differ between layouts: libraries with their links, nvidia-smi, and links to them. The
layouts follow NVIDIA's gpu-driver-container and gpu-operator, bottlerocket-kernel-kit (kmod-*-nvidia),
siderolabs/extensions (nvidia-gpu), Flatcar's documentation of NVIDIA GPUs, Google's
container-engine-accelerators and cos-gpu-installer.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
_SMI = "nvidia-smi"


@dataclass(frozen=True, slots=True)
class HostLayout:
    """Where a driver is: its ``root`` on the host, and below that the folders of libraries and programs.

    ``container_libraries`` and ``container_programs`` are the folders that containers need them in. ``links``
    are further links below the host's root: path and target, which is absolute if it is so on a real node.
    ``real_root`` is the folder that the root is a link to.
    """

    root: str
    libraries: str
    programs: str
    container_libraries: str
    container_programs: str
    links: tuple[tuple[str, str], ...] = ()
    real_root: str = ""


def _usual(root: str, libraries: str, *links: tuple[str, str]) -> HostLayout:
    return HostLayout(root, libraries, "usr/bin", f"/{libraries}", "/usr/bin", links)


def _debian(root: str, prefix: str) -> HostLayout:
    """A layout of Debian, whose alternatives system adds links; ``prefix`` is where they are on the host."""
    # The links are absolute: below a driver root they lead to nowhere, unless they are resolved below it.
    current, folder = "usr/lib/x86_64-linux-gnu/nvidia/current", f"{prefix}usr/lib/x86_64-linux-gnu"
    alternatives = f"{prefix}etc/alternatives"
    return HostLayout(
        root,
        current,
        "usr/lib/nvidia/current",
        f"/{current}",
        "/usr/bin",
        (
            (f"{alternatives}/glx--libcuda.so.1", f"/{current}/libcuda.so.1"),
            (f"{folder}/libcuda.so.1", "/etc/alternatives/glx--libcuda.so.1"),
            (f"{alternatives}/nvidia-smi", "/usr/lib/nvidia/current/nvidia-smi"),
            (f"{prefix}usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi"),
        ),
    )


_CONTAINER = "/run/nvidia/driver"
_SYSTEM_ROOT = "/x86_64-bottlerocket-linux-gnu/sys-root"
_BUNDLED = ("lib64", "bin", "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin")

HOST_LAYOUTS = {
    "driver container, Ubuntu": _usual(_CONTAINER, "usr/lib/x86_64-linux-gnu"),
    "driver container, Debian": _debian(_CONTAINER, "run/nvidia/driver/"),
    "driver container, OpenShift": _usual(_CONTAINER, "usr/lib64", ("run/nvidia/driver/lib64", "usr/lib64")),
    "Ubuntu": _usual("/", "usr/lib/x86_64-linux-gnu", ("lib", "usr/lib")),
    "Ubuntu on arm64": _usual("/", "usr/lib/aarch64-linux-gnu", ("lib", "usr/lib")),
    "Debian": _debian("/", ""),
    "Red Hat": _usual("/", "usr/lib64", ("lib64", "usr/lib64")),
    "Bottlerocket": HostLayout(
        _SYSTEM_ROOT, "usr/lib", "usr/libexec/nvidia/tesla/bin", "/usr/lib", "/usr/bin",
        ((f"{_SYSTEM_ROOT[1:]}/usr/lib/nvidia/tesla/libcuda.so.1", "/usr/lib/libcuda.so.1"),),
    ),
    "Bottlerocket before R580": HostLayout(
        _SYSTEM_ROOT, "usr/lib/nvidia/tesla", "usr/libexec/nvidia/tesla/bin", "/usr/lib", "/usr/bin"
    ),
    "Talos": HostLayout(
        "/", "usr/local/lib", "usr/local/bin", "/usr/local/lib", "/usr/bin",
        (("usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi"),),
    ),
    "Talos before 1.13": HostLayout(
        "/", "usr/local/glibc/usr/lib", "usr/local/bin", "/usr/lib", "/usr/local/bin"
    ),
    "Flatcar, system extension": _usual("/", "usr/lib64"),
    "Flatcar, nvidia.service": HostLayout(
        "/opt/nvidia/current", "usr/lib64", "../../../../opt/bin", "/usr/lib64", "/usr/bin",
        (
            ("opt/nvidia/current", "/opt/nvidia/525.105.17/6.1.50-flatcar"),
            ("opt/nvidia/525.105.17/6.1.50-flatcar/usr/bin/nvidia-smi", "/opt/bin/nvidia-smi"),
        ),
        "/opt/nvidia/525.105.17/6.1.50-flatcar",
    ),
    "GKE": HostLayout("/home/kubernetes/bin/nvidia", *_BUNDLED),
    "Container-Optimized OS": HostLayout("/var/lib/nvidia", *_BUNDLED),
    "GKE on Ubuntu": HostLayout("/opt/nvidia", *_BUNDLED),
}  # fmt: skip


def lay_driver(host: Path, layout: HostLayout, version: str) -> Path:
    """Install the driver below a pretend host's root in place of another version.

    Returns the folder of the libraries.
    """
    root = host / (layout.real_root or layout.root).lstrip("/")
    folder = Path(os.path.normpath(root / layout.libraries))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("lib*.so*"):
        old.unlink()
    for library in _LIBRARIES:
        (folder / f"{library}.so.{version}").write_text(f"{library} {version}\n")
        (folder / f"{library}.so.1").symlink_to(f"{library}.so.{version}")
    programs = Path(os.path.normpath(root / layout.programs))
    programs.mkdir(parents=True, exist_ok=True)
    (programs / _SMI).write_text("#!/bin/sh\n")
    (programs / _SMI).chmod(0o755)
    for path, target in layout.links:
        link = host / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return folder


def remove_driver(host: Path, layout: HostLayout) -> None:
    """Empty the driver's root, as a driver container does when it ends; the folder stays."""
    root = host / layout.root.lstrip("/")
    shutil.rmtree(root)
    root.mkdir()
