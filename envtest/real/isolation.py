"""Sets up the mounts of a cluster inside its own mount namespace, and removes them.

The paths of some folders are fixed in the code of the kubelet and containerd. In the cluster's namespace an
empty folder of the cluster is mounted over each of them, so that clusters do not share files there or leave
any behind.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from envtest.client.layout import ClusterLayout

# In their order: device-plugins and more, sockets of containerd's shims, container logs by name, CNI results.
FIXED_FOLDERS = (
    Path("/var/lib/kubelet"),
    Path("/run/containerd"),
    Path("/var/log/containers"),
    Path("/var/lib/cni"),
)
MOUNT_TABLE = Path("/proc/self/mountinfo")


def arrange(layout: ClusterLayout) -> None:
    """Mount the cluster's own folders over the fixed ones, and make its folder pass mounts on.

    Must run in the mount namespace of the cluster.
    """
    for folder in FIXED_FOLDERS:
        stand_in = layout.private_mounts / folder.relative_to("/")
        stand_in.mkdir(parents=True)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", stand_in, folder], check=True)
    # mountPropagation: Bidirectional needs a shared mount. A folder has to be mounted on itself to be one.
    subprocess.run(["mount", "--bind", layout.folder, layout.folder], check=True)
    subprocess.run(["mount", "--make-rshared", layout.folder], check=True)


def mounts_below(folder: Path, table: str) -> list[Path]:
    """The mount points at and below a folder, from a mountinfo table, innermost and latest first."""
    # The fifth field of mountinfo is the mount point.
    points = [_unescaped(line.split()[4]) for line in table.splitlines()]
    return [point for point in reversed(points) if point.is_relative_to(folder)]


def unmount_below(folder: Path) -> list[Path]:
    """Unmount all that is mounted at and below a folder; returns what could not be unmounted."""
    for point in mounts_below(folder, MOUNT_TABLE.read_text()):
        # Lazy: a mount that is still in use vanishes from the folder now, and for good when its last user
        # ends.
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)
    return mounts_below(folder, MOUNT_TABLE.read_text())


def _unescaped(field: str) -> Path:
    """A mountinfo field with its octal escapes (space, tab, newline, backslash) undone."""
    for escape, character in {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}.items():
        field = field.replace(escape, character)
    return Path(field)
