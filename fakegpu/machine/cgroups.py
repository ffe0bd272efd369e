"""Pretended control groups: folders below a root of the fake machine, made by the pretended runtime.

The group that NVML takes as /sys/fs/cgroup/a/b is the folder <root>/a/b, on a machine with cgroup v1 as well.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath

from driver.errors import ClaimBlocked
from driver.nvml.memory_limits import Cgroup
from fakegpu.machine.state import GpuState, MachineState

CGROUP_ROOT = "/sys/fs/cgroup"
"""Where cgroup v2 is mounted; NVML takes no other place."""

_ROOT_INODE = 1

# A link in the folder of a pretended group, whose target is the group's inode number. The folder's own number
# does not do: a file system gives that of a removed folder to the next one.
_NUMBER = ".inode"

# Controllers and path in a line of /proc/PID/cgroup. On cgroup v2 the only line is 0::/path, without
# controllers. The path has more than a slash: no container is in the root group.
_LINE = re.compile(r"^\d+:([^:\n]*):(/[^\n]+)$", re.MULTILINE)


class FakeCgroups:
    """The groups below ``root``.

    ``followed`` is where this machine mounts the memory controller of cgroup v1. A process in one of its
    groups has a pretended group at the same path, for as long as the real group exists.
    """

    def __init__(self, root: Path, followed: Path = Path("/sys/fs/cgroup/memory")) -> None:
        self._root = root
        self._followed = followed

    def make(self, path: str) -> Cgroup:
        """Make a group and those above it, as a runtime does before a container starts, unless they exist.

        ``path`` is as in /proc/PID/cgroup, or as NVML takes it.
        """
        folder = self._folder(path)
        self._root.mkdir(parents=True, exist_ok=True)
        above = folder.relative_to(self._root).parents
        for group in (*reversed([self._root / one for one in above][:-1]), folder):
            _make_group(group)
        return self._found(_nvml_path(path))

    def remove(self, path: str) -> None:
        """Remove a group and all groups below it, as a runtime does when a container has ended."""
        folder = self._folder(path)
        with suppress(FileNotFoundError):
            # A link to a real group of cgroup v1: only the link may be removed.
            if folder.is_symlink():
                folder.unlink()
            else:
                shutil.rmtree(folder)

    def clear(self) -> None:
        """Remove all groups, as a restart of the machine does."""
        for child in self._root.iterdir() if self._root.is_dir() else ():
            self.remove(f"/{child.name}")

    def of_process(self, text: str) -> Cgroup:
        """The group of a process, from the text of its /proc/PID/cgroup; raises ClaimBlocked without one."""
        for controllers, path in _LINE.findall(text):
            if not controllers or "memory" in controllers.split(","):
                self._follow(path)
                if _inode_of(self._root, _nvml_path(path)) is not None:
                    return self._found(_nvml_path(path))
        raise ClaimBlocked(
            f"there is no pretended control group {text.strip()!r}", "the runtime has to make it first"
        )

    def is_there(self, cgroup: Cgroup) -> bool:
        """Whether this group still exists, and is not another group with the same path."""
        return _inode_of(self._root, cgroup.path) == cgroup.inode

    def _folder(self, path: str) -> Path:
        folder = _folder_of(self._root, _nvml_path(path))
        if folder is None or folder == self._root:
            raise ValueError(f"{path} is not a control group below the root")
        return folder

    def _found(self, path: str) -> Cgroup:
        inode = _inode_of(self._root, path)
        if inode is None:
            raise ClaimBlocked(f"the control group {path} has just been removed", "try again")
        return Cgroup(path, inode)

    def _follow(self, path: str) -> None:
        """Make a link to a real group of cgroup v1 at its path, unless a pretended group is there."""
        real, folder = _folder_of(self._followed, _nvml_path(path)), _folder_of(self._root, _nvml_path(path))
        if real is None or folder is None or folder == self._root or not real.is_dir() or folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A link that is still there leads to a group that was removed.
        with suppress(FileNotFoundError):
            folder.unlink()
        # Another process may be faster.
        with suppress(FileExistsError):
            folder.symlink_to(real)


def _folder_of(root: Path, path: str) -> Path | None:
    """The folder below ``root`` of a group's path as NVML takes it; None for one outside /sys/fs/cgroup."""
    parts = PurePosixPath(path)
    # PurePosixPath does not resolve "..", so it could lead out of the root.
    if not parts.is_relative_to(CGROUP_ROOT) or ".." in parts.parts or "\0" in path:
        return None
    return root / parts.relative_to(CGROUP_ROOT)


def _inode_of(root: Path, path: str) -> int | None:
    """The inode of the group at a path as NVML takes it; None if there is none. The root always has one."""
    folder = _folder_text(str(root), path)
    if not folder:
        return None
    if folder == str(root):
        return _ROOT_INODE
    try:
        return int(os.readlink(f"{folder}/{_NUMBER}"))  # noqa: PTH115 - read for each group at each call
    except OSError:
        # A folder that ``make`` did not make: a link to a real group.
        with suppress(OSError):
            return os.stat(folder).st_ino  # noqa: PTH116 - likewise
    return None


@lru_cache(maxsize=4096)
def _folder_text(root: str, path: str) -> str:
    """The same as ``_folder_of`` as text, which is faster to use; empty for a path outside /sys/fs/cgroup."""
    return str(_folder_of(Path(root), path) or "")


def _nvml_path(path: str) -> str:
    given = PurePosixPath(path)
    return str(given if given.is_relative_to(CGROUP_ROOT) else PurePosixPath(CGROUP_ROOT, path.lstrip("/")))


def _make_group(folder: Path) -> None:
    """Make the folder of a group with its inode number, unless it exists."""
    if folder.is_dir():
        return
    # Made aside and renamed, so that no process sees a group without its number.
    made = folder.parent / f".{os.urandom(6).hex()}"
    made.mkdir()
    (made / _NUMBER).symlink_to(str(int.from_bytes(os.urandom(6)) + _ROOT_INODE + 1))
    try:
        made.rename(folder)
    except OSError:
        # Another process was faster: a folder cannot replace one that is not empty.
        shutil.rmtree(made)


def group_at(state: MachineState, path: str) -> Cgroup | None:
    """The group at a path as NVML takes it; None if there is none, ValueError for a path outside the root."""
    root = _root(state)
    folder = _folder_of(root, path)
    if folder is None:
        raise ValueError(f"{path} is not a folder below {CGROUP_ROOT}")
    inode = _inode_of(root, path)
    return None if inode is None else Cgroup(str(Path(CGROUP_ROOT, folder.relative_to(root))), inode)


def without_dead_groups(state: MachineState, gpu: GpuState) -> GpuState:
    """A GPU without the limits and clients of removed groups: the NVIDIA driver ends both with the group."""
    if not gpu.memory.limits and not gpu.memory.clients:
        return gpu
    root = _root(state)
    memory = gpu.memory.of_existing_groups(lambda group: _inode_of(root, group.path) == group.inode)
    return gpu if memory is gpu.memory else replace(gpu, memory=memory)


def _root(state: MachineState) -> Path:
    return Path(state.pretend_cgroups or CGROUP_ROOT)
