"""Provides the memory that daemons share with their clients, and space for logs, both limited in size.

Clients write to their /dev/shm, and cause every line of a log. If this process may mount, each daemon has a
tmpfs of a limited size for either. Otherwise, which needs a flag, all daemons and clients have the node's
/dev/shm, and logs have no limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from driver.errors import ConfigError, NodeIncomplete
from driver.process.durable import storage_errors
from driver.process.log import get_logger
from kubeletplugin.sharing.mps import mounts
from kubeletplugin.sharing.mps.folders import FOLDER_MODE, DaemonFolder, make_folder

NODE_SHM = Path("/dev/shm")  # noqa: S108 - the kernel's place for it
LOG_MIB = 16
MOST_FILES = 16384
"""The limit in each of these tmpfs: even empty files take memory of the kernel."""

_SHM_MODE = 0o1777
_WAY_OUT = (
    "run the supervisor privileged, or have it use the node's /dev/shm (--shm node), where pods with a share "
    "see the files of other processes and can fill its memory"
)
_log = get_logger(__name__)


class Memory(Protocol):
    """The memory that daemons and clients exchange data by."""

    def check(self, mps_dir: Path) -> None:
        """Raise ConfigError if containers would not see mounts below this folder."""

    def make(self, folder: DaemonFolder) -> None:
        """Make it before a daemon starts, unless it exists; raises NodeIncomplete, StorageError."""

    def command(
        self, folder: DaemonFolder, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """The command and the environment that start a daemon with this memory."""

    def remove(self, folder: DaemonFolder) -> None:
        """Remove it, once no daemon uses it any more; raises StorageError."""


class OwnMemory:
    """A tmpfs for each daemon and its clients, and one for its logs."""

    def __init__(self, shm_mib: int, proc: Path) -> None:
        """``proc`` shows the processes of the whole node."""
        self._shm_mib = shm_mib
        self._proc = proc

    def check(self, mps_dir: Path) -> None:
        """Check that mounts below the folder reach the host, where containers are made."""
        try:
            # Outside of the host's mount namespace, they do so only if the folder's mount is shared.
            is_host = (self._proc / "1/ns/mnt").readlink() == (self._proc / "self/ns/mnt").readlink()
            table = (self._proc / "self/mountinfo").read_text(errors="replace")
        except OSError:
            return  # it cannot be found out; a container without the mount fails at its start
        if not is_host and not is_shared_mount(mps_dir, table):
            raise ConfigError(
                f"mounts below {mps_dir} are not visible on the host, so containers would not get them",
                "set mountPropagation: Bidirectional for that volume, or start with --shm node",
            )

    def make(self, folder: DaemonFolder) -> None:
        """Mount both, unless they are mounted."""
        for path, mib, mode in (
            (folder.shm, self._shm_mib, _SHM_MODE),
            (folder.logs, LOG_MIB, FOLDER_MODE),
        ):
            with storage_errors(path, "making"):
                if path.is_symlink():
                    path.unlink()  # of a supervisor that used the node's /dev/shm
                make_folder(folder.path)
                path.mkdir(exist_ok=True)
            if not _is_mounted(path):
                try:
                    mounts.mount_tmpfs(str(path), mib, mode, MOST_FILES)
                except OSError as error:
                    raise NodeIncomplete(
                        f"cannot mount a tmpfs at {path}: {error.strerror}", _WAY_OUT
                    ) from error

    def command(
        self, folder: DaemonFolder, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """A Python interpreter, which mounts and then becomes the daemon."""
        # The daemon's environment is an argument: its LD_LIBRARY_PATH leads to libraries of the driver root,
        # which must not be loaded into the interpreter.
        program = [sys.executable, "-I", "-S", mounts.__file__]
        return [*program, str(folder.shm), json.dumps(dict(environment)), *command], {"LC_ALL": "C"}

    def remove(self, folder: DaemonFolder) -> None:
        """Unmount both; containers that still use one keep it."""
        _unmount(folder)


class NodeMemory:
    """The node's /dev/shm for all daemons and clients."""

    def check(self, mps_dir: Path) -> None:
        """Always possible, and logged as a warning."""
        _log.warning("MPS clients use the node's shared memory", mps_dir=str(mps_dir), shm=str(NODE_SHM))

    def make(self, folder: DaemonFolder) -> None:
        """Link the daemon's ``shm`` to the node's /dev/shm, unless it has one of its own."""
        with storage_errors(folder.shm, "making"):
            make_folder(folder.path)
            with suppress(FileExistsError):
                folder.shm.symlink_to(NODE_SHM)

    def command(
        self,
        folder: DaemonFolder,  # noqa: ARG002 - the other kind of memory needs it
        command: Sequence[str | Path],
        environment: Mapping[str, str],
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """The command as it is."""
        return list(command), environment

    def remove(self, folder: DaemonFolder) -> None:
        """Unmount what an earlier supervisor mounted, if there is anything."""
        _unmount(folder)


def _unmount(folder: DaemonFolder) -> None:
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
