"""Gives daemons the memory that they share with their clients, and room for logs, within limits.

Clients write to what they see as /dev/shm, and each line of a log is of some client's making. Where this
process may mount, both are tmpfs of a limited size, one for each daemon. Where it may not, which somebody has
to ask for, all daemons and clients have the node's /dev/shm, and logs have no limit.
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
"""In one of these tmpfs: files take memory of the kernel even when they are empty."""

_SHM_MODE = 0o1777
_WAY_OUT = (
    "run the supervisor privileged, or have it use the node's /dev/shm (--shm node), where pods with a share "
    "see the files of other processes and can fill its memory"
)
_log = get_logger(__name__)


class Memory(Protocol):
    """Where daemons and clients exchange memory."""

    def check(self, mps_dir: Path) -> None:
        """Raise ConfigError where containers would not see what is made below that folder."""

    def make(self, folder: DaemonFolder) -> None:
        """Have it there before a daemon starts; what is there stays. Raises NodeIncomplete, StorageError."""

    def command(
        self, folder: DaemonFolder, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """The command, and its environment, that starts a daemon so that it uses this memory."""

    def remove(self, folder: DaemonFolder) -> None:
        """Let go of it, once no daemon uses it any more; raises StorageError."""


class OwnMemory:
    """A tmpfs for each daemon and its clients, and one for its logs."""

    def __init__(self, shm_mib: int, proc: Path) -> None:
        """``proc`` shows the processes of the whole node."""
        self._shm_mib = shm_mib
        self._proc = proc

    def check(self, mps_dir: Path) -> None:
        """A container's mounts reach the host, where containers are made, only if they are passed on."""
        try:
            is_host = (self._proc / "1/ns/mnt").readlink() == (self._proc / "self/ns/mnt").readlink()
            table = (self._proc / "self/mountinfo").read_text(errors="replace")
        except OSError:
            return  # then nobody can tell; a container that lacks the mount says so when it starts
        if not is_host and not is_passed_on(mps_dir, table):
            raise ConfigError(
                f"what is mounted below {mps_dir} is not seen on the host, where containers get it from",
                "give that volume mountPropagation: Bidirectional, or start with --shm node",
            )

    def make(self, folder: DaemonFolder) -> None:
        """Mount both, where they are not mounted."""
        for path, mib, mode in (
            (folder.shm, self._shm_mib, _SHM_MODE),
            (folder.logs, LOG_MIB, FOLDER_MODE),
        ):
            with storage_errors(path, "making"):
                if path.is_symlink():
                    path.unlink()
                make_folder(folder.path)
                path.mkdir(exist_ok=True)
            if not _is_mounted(path):
                try:
                    mounts.mount_tmpfs(str(path), mib, mode, MOST_FILES)
                except OSError as error:
                    raise NodeIncomplete(
                        f"no tmpfs can be mounted at {path}: {error.strerror}", _WAY_OUT
                    ) from error

    def command(
        self, folder: DaemonFolder, command: Sequence[str | Path], environment: Mapping[str, str]
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """Through this interpreter, which mounts and then becomes the daemon.

        It gets nothing of the daemon's environment: libraries of the driver root are not for it.
        """
        program = [sys.executable, "-I", "-S", mounts.__file__]
        return [*program, str(folder.shm), json.dumps(dict(environment)), *command], {"LC_ALL": "C"}

    def remove(self, folder: DaemonFolder) -> None:
        """Unmount both; containers that still have the one keep it."""
        _unmount(folder)


class NodeMemory:
    """The node's /dev/shm for all."""

    def check(self, mps_dir: Path) -> None:
        """Nothing is mounted."""
        _log.warning("MPS clients have the node's shared memory", mps_dir=str(mps_dir), shm=str(NODE_SHM))

    def make(self, folder: DaemonFolder) -> None:
        """Lead containers to the node's /dev/shm."""
        use_node_shm(folder)

    def command(
        self,
        folder: DaemonFolder,  # noqa: ARG002 - the other kind of memory goes by it
        command: Sequence[str | Path],
        environment: Mapping[str, str],
    ) -> tuple[list[str | Path], Mapping[str, str]]:
        """As it is."""
        return list(command), environment

    def remove(self, folder: DaemonFolder) -> None:
        """What an earlier supervisor mounted goes, if it may."""
        _unmount(folder)


def use_node_shm(folder: DaemonFolder) -> None:
    """Lead the clients of a daemon to the node's /dev/shm, where it has nothing of its own.

    Raises StorageError.
    """
    with storage_errors(folder.shm, "making"):
        make_folder(folder.path)
        with suppress(FileExistsError):
            folder.shm.symlink_to(NODE_SHM)


def _unmount(folder: DaemonFolder) -> None:
    for path in (folder.shm, folder.logs):
        if _is_mounted(path):
            with storage_errors(path, "unmounting"):
                mounts.unmount(str(path))


def _is_mounted(path: Path) -> bool:
    """Whether something is mounted at the path itself: a link may lead to a mount of the node."""
    return not path.is_symlink() and path.is_mount()


def is_passed_on(path: Path, table: str) -> bool:
    """Whether mounts made at a path reach other mount namespaces, by the text of a mountinfo (proc(5))."""
    best: tuple[int, bool] = (-1, False)
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 7:
            continue
        point = fields[4].encode().decode("unicode_escape")
        optional = fields[6 : fields.index("-", 6)] if "-" in fields[6:] else []
        if path.is_relative_to(point) and len(point) >= best[0]:
            best = len(point), any(one.startswith("shared:") for one in optional)
    return best[1]
