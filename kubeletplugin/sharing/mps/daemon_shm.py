"""Provides the memory that daemons share with their clients, and space for logs, both limited in size.

Clients write to their /dev/shm, and cause every line of a log. So each daemon has a tmpfs of a limited size
for either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from driver.errors import ConfigError, NodeIncomplete
from driver.process.durable import storage_errors
from kubeletplugin.sharing.mps import mounts
from kubeletplugin.sharing.mps.folders import FOLDER_MODE, DaemonFolder, make_folder

NODE_SHM = Path("/dev/shm")  # noqa: S108 - the kernel's place for it
LOG_MIB = 16
MOST_FILES = 16384
"""The limit in each of these tmpfs: even empty files take memory of the kernel."""

_SHM_MODE = 0o1777


class DaemonMemory:
    """A tmpfs for each daemon and its clients, and one for its logs.

    Without ``shm_mib``, for verify and the demo, nothing is mounted: their programs run outside of containers
    and have the node's /dev/shm.
    """

    def __init__(self, shm_mib: int | None, proc: Path) -> None:
        """``proc`` shows the processes of the whole node."""
        self._shm_mib = shm_mib
        self._proc = proc

    def check(self, mps_dir: Path) -> None:
        """Raise ConfigError if containers would not see mounts below this folder."""
        if self._shm_mib is None:
            return
        try:
            # Outside of the host's mount namespace, they do so only if the folder's mount is shared.
            is_host = (self._proc / "1/ns/mnt").readlink() == (self._proc / "self/ns/mnt").readlink()
            table = (self._proc / "self/mountinfo").read_text(errors="replace")
        except OSError:
            return  # it cannot be found out; a container without the mount fails at its start
        if not is_host and not is_shared_mount(mps_dir, table):
            raise ConfigError(
                f"mounts below {mps_dir} are not visible on the host, so containers would not get them",
                "set mountPropagation: Bidirectional for that volume",
            )

    def make(self, folder: DaemonFolder) -> None:
        """Mount both before a daemon starts, unless they are mounted; raises NodeIncomplete, StorageError."""
        if self._shm_mib is None:
            with storage_errors(folder.shm, "making"):
                make_folder(folder.path)
                with suppress(FileExistsError):
                    folder.shm.symlink_to(NODE_SHM)
            return
        for path, mib, mode in (
            (folder.shm, self._shm_mib, _SHM_MODE),
            (folder.logs, LOG_MIB, FOLDER_MODE),
        ):
            with storage_errors(path, "making"):
                make_folder(folder.path)
                path.mkdir(exist_ok=True)
            if not _is_mounted(path):
                try:
                    mounts.mount_tmpfs(str(path), mib, mode, MOST_FILES)
                except OSError as error:
                    raise NodeIncomplete(
                        f"cannot mount a tmpfs at {path}: {error.strerror}", "run the supervisor privileged"
                    ) from error

    def command(
        self, folder: DaemonFolder, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """The command and the environment that start a daemon with this memory.

        It is a Python interpreter, which mounts and then becomes the daemon.
        """
        if self._shm_mib is None:
            return list(command), environment
        # The daemon's environment is an argument: its LD_LIBRARY_PATH leads to libraries of the driver root,
        # which must not be loaded into the interpreter.
        program = [sys.executable, "-I", "-S", mounts.__file__]
        return [*program, str(folder.shm), json.dumps(dict(environment)), *command], {"LC_ALL": "C"}

    def remove(self, folder: DaemonFolder) -> None:
        """Unmount both, once no daemon uses them; raises StorageError. Containers that use one keep it."""
        for path in (folder.shm, folder.logs):
            if _is_mounted(path):
                with storage_errors(path, "unmounting"):
                    mounts.unmount(str(path))


def _is_mounted(path: Path) -> bool:
    """Whether something is mounted at the path itself; a symbolic link may lead to a mount of the node."""
    return not path.is_symlink() and path.is_mount()


def is_shared_mount(path: Path, table: str) -> bool:
    """Whether mounts made at a path reach other mount namespaces, by the text of a mountinfo (proc(5))."""
    # The mount that a path lies in is the one with the longest mount point above it; of several at one
    # point, the last one covers the others. Optional fields stand between the sixth one and a dash.
    best: tuple[int, bool] = (-1, False)
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 7:
            continue
        # Blanks and some other characters are written as octal escapes, such as \040.
        point = fields[4].encode().decode("unicode_escape")
        optional = fields[6 : fields.index("-", 6)] if "-" in fields[6:] else []
        if path.is_relative_to(point) and len(point) >= best[0]:
            best = len(point), any(one.startswith("shared:") for one in optional)
    return best[1]
