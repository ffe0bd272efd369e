"""Arranges the mounts of a cluster inside its own mount namespace, and takes them down again.

Some folders are fixed in the kubelet's and containerd's code. In the cluster's namespace each of
them is an empty folder of the cluster, so that clusters do not meet there, nor leave files there.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from envtest.client.layout import ClusterLayout

# device-plugins and more; sockets of containerd's shims; container logs by name; CNI results.
FIXED_FOLDERS = (
    Path("/var/lib/kubelet"),
    Path("/run/containerd"),
    Path("/var/log/containers"),
    Path("/var/lib/cni"),
)
MOUNT_TABLE = Path("/proc/self/mountinfo")


def arrange(layout: ClusterLayout) -> None:
    """Give the cluster its fixed folders, and let its nodes pass mounts on to containers and back.

    Must run in the mount namespace of the cluster.
    """
    for folder in FIXED_FOLDERS:
        stand_in = layout.private_mounts / folder.relative_to("/")
        stand_in.mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", stand_in, folder], check=True)
    # mountPropagation: Bidirectional needs a shared mount, which a folder is not by itself.
    subprocess.run(["mount", "--bind", layout.folder, layout.folder], check=True)
    subprocess.run(["mount", "--make-rshared", layout.folder], check=True)


def mounts_below(folder: Path, table: str) -> list[Path]:
    """The mount points at and below a folder, from a mountinfo table, innermost and latest first."""
    points = [_unescaped(line.split()[4]) for line in table.splitlines()]
    return [point for point in reversed(points) if point.is_relative_to(folder)]


def unmount_below(folder: Path) -> list[Path]:
    """Unmount all that is mounted at and below a folder; returns what could not be unmounted."""
    for point in mounts_below(folder, MOUNT_TABLE.read_text()):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    return mounts_below(folder, MOUNT_TABLE.read_text())


def _unescaped(field: str) -> Path:
    """A mountinfo field with its octal escapes (space, tab, newline, backslash) undone."""
    for escape, character in {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}.items():
        field = field.replace(escape, character)
    return Path(field)
