"""Removes what a cluster leaves once its processes are gone: mounts, control groups, files."""

from __future__ import annotations

import shutil

from envtest.client.errors import ClusterError
from envtest.client.layout import ClusterLayout
from envtest.real import cgroups, isolation
from envtest.real.slots import Slot


def clean(layout: ClusterLayout, slot: Slot, *, keep_logs: bool) -> None:
    """Unmount, remove the control groups, remove the files; must run in the cluster's namespace.

    Raises:
        ClusterError: something is still in use; files below a mount are never removed, because
            they may be the machine's.
    """
    # First of all, so that no file is removed through a mount.
    mounted = isolation.unmount_below(layout.folder)
    if mounted:
        raise ClusterError(f"cannot unmount {', '.join(map(str, mounted))}: files are left there")
    busy = cgroups.remove(slot.cgroup_prefix)
    remove_files(layout, keep_logs=keep_logs)
    if busy:
        raise ClusterError(f"processes live on in the control groups {', '.join(map(str, busy))}")


def remove_files(layout: ClusterLayout, *, keep_logs: bool) -> None:
    """Remove the cluster's folder, or all in it but the logs."""
    if not keep_logs:
        shutil.rmtree(layout.folder)
        return
    for path in layout.folder.iterdir():
        if path == layout.logs:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
