"""Makes and removes the control groups of a cluster's nodes, in cgroup v1 and v2."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
# rmdir of a group fails with EBUSY for a moment after its last process ended.
REMOVAL_SECONDS = 5.0
RETRY_SECONDS = 0.02


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """The mounted hierarchies: one for v2, one for each controller (and maybe v2's) for v1."""
    # Only the root of cgroup v2 has this file.
    if (root / "cgroup.controllers").exists():
        return [root]
    # With v1 some names are links to hierarchies with several controllers (cpu to cpu,cpuacct).
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def make(name: str, root: Path = CGROUP_ROOT) -> None:
    """Make a group in every hierarchy; the kubelet insists that its root group is there."""
    for hierarchy in hierarchies(root):
        (hierarchy / name).mkdir(exist_ok=True)


def remove(prefix: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """Remove all top groups whose names begin with ``prefix``, once their processes are gone.

    Returns the groups that were still busy after five seconds: a process of theirs lives on.
    """
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        busy = [
            group
            for hierarchy in hierarchies(root)
            for top in hierarchy.glob(f"{prefix}*")
            for group in _below(top)
            if not _removed(group)
        ]
        if not busy or time.monotonic() > deadline:
            return busy
        time.sleep(RETRY_SECONDS)


def _below(top: Path) -> Iterator[Path]:
    """A group and all groups in it, the innermost first."""
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)


def _removed(group: Path) -> bool:
    try:
        # The files in the folder of a group belong to the kernel: rmdir removes it with them, once no process
        # and no group is in it.
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
