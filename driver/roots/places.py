"""The places where distributions and installers put the NVIDIA driver on a node, in the order of a probe."""

from __future__ import annotations

from dataclasses import dataclass

LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib64",
    "usr/lib",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib64",
    "lib",
    "usr/local/nvidia/lib64",
    "opt/lib64",
    "usr/lib/nvidia/tesla",
    "usr/local/glibc/usr/lib64",
    "usr/local/glibc/usr/lib",
    "usr/local/glibc/lib64",
    "usr/local/glibc/lib",
    "usr/local/lib64",
    "usr/local/lib",
)
"""The folders with the driver's libraries below a driver root.

NVML is loaded from there, and containers get the libraries there. ``nvidia/tesla`` is from Bottlerocket
(bottlerocket-kernel-kit, kmod-*-nvidia), ``usr/local`` from Talos (siderolabs/extensions, nvidia-gpu).
"""

PROGRAM_FOLDERS = (
    "usr/bin",
    "usr/sbin",
    "usr/local/bin",
    "usr/local/sbin",
    "usr/local/nvidia/bin",
    "bin",
    "sbin",
    "opt/bin",
    "usr/libexec/nvidia/tesla/bin",
    "usr/local/glibc/usr/bin",
)
"""The folders with the driver's programs below a driver root."""

Moved = tuple[tuple[str, str], ...]
"""Folders below a driver root, each with its folder in containers."""

# Of Bottlerocket and Talos, whose folders no container searches.
_TO_USUAL_FOLDERS: Moved = (
    ("/usr/lib/nvidia/tesla", "/usr/lib"),
    ("/usr/libexec/nvidia/tesla/bin", "/usr/bin"),
    ("/usr/local/glibc", ""),
)
# Google's folders are not root file systems: ``lib64`` and ``bin`` are directly in them. Its device plugin
# mounts them at /usr/local/nvidia, which CUDA's images search by LD_LIBRARY_PATH and PATH.
_BUNDLE: Moved = (("", "/usr/local/nvidia"),)


@dataclass(frozen=True, slots=True)
class Place:
    """One place: its ``path`` on the host, and what installs a driver there.

    If it is a root file system of its own (``own_links``), its absolute links lead to files below the place,
    otherwise to files below the host's root. A file has the same path in a container as below the place,
    unless it is below one of the folders in ``moved``, which no linker and no PATH of a container searches.
    """

    name: str
    path: str
    own_links: bool = False
    moved: Moved = _TO_USUAL_FOLDERS


PLACES = (
    Place("driver container", "/run/nvidia/driver", own_links=True),
    Place("host", "/"),
    Place("Bottlerocket", "/x86_64-bottlerocket-linux-gnu/sys-root"),
    Place("Bottlerocket", "/aarch64-bottlerocket-linux-gnu/sys-root"),
    Place("Flatcar", "/opt/nvidia/current"),
    Place("GKE", "/home/kubernetes/bin/nvidia", moved=_BUNDLE),
    Place("Container-Optimized OS", "/var/lib/nvidia", moved=_BUNDLE),
    Place("GKE on Ubuntu", "/opt/nvidia", moved=_BUNDLE),
)
"""The known places, in the order of a probe. docs/install.md lists them for users."""


def place_at(path: str) -> Place:
    """The known place at a path of the host; any other path is taken for a root file system of its own."""
    known = (place for place in PLACES if place.path == path)
    return next(known, Place("--driver-root", path, own_links=True))
