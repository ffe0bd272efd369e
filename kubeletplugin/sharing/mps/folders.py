"""The folder of one MPS daemon: its record, its pipe directory, the part of it for clients, its logs.

    <mps-dir>/<name>/daemon.json   the settings to run with, written before the daemon is started
                     pipe/         CUDA_MPS_PIPE_DIRECTORY of the daemon and of its control program
                     clients/      the pipe directory of containers, read-only: a link to ``pipe/control``
                     shm           /dev/shm of the daemon and of containers
                     log/          control.log and server.log, each with the previous one as *.1
                                   unless that was long, and output, what the daemon printed

The pipe directory also has ``control_privileged``, by which root ends the daemon and changes limits, and
``log``, by which servers write its logs. Root of a container could use them, so containers do not see them.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from driver.errors import ClaimRefused
from driver.process.durable import (
    put_aside,
    regular_only,
    remove_durably,
    storage_errors,
    write_durably,
)
from driver.process.log import get_logger
from driver.process.sockets import checked_socket_path
from kubeletplugin.kubelet.wire.mps_daemon import MpsDaemon, checked_name, read_spec, write_spec

FOLDER_MODE, CLIENTS_MODE = 0o711, 0o755
"""A server runs as the user of its clients and has to open the pipes, whose names it knows: it may enter the
folder. MPS makes its lock, its log pipe and its pid file writable for everybody, so only root may list the
folder. Containers see only the folder of clients."""

LONGEST_SOCKET = "control_privileged"
"""The longest name of a socket that the daemon makes in its pipe directory."""

CLIENT_SOCKET = "control"
"""The socket that a CUDA process connects to, to get the connection to its server."""

_LOGS = ("control.log", "server.log")
_MOST_KEPT_BYTES = 4 << 20
"""A larger log is not kept beside the next one: clients make it grow, and the space is small."""

_TAIL_BYTES = 4096
_TAIL_LINES = 5
_MOST_QUOTED = 500
_log = get_logger(__name__)


class DaemonFolder:
    """The paths of one daemon below the supervisor's folder."""

    def __init__(self, mps_dir: Path, name: str) -> None:
        """Raises ClaimRefused for an invalid name, ConfigError if the path is too long for sockets."""
        self.path = mps_dir.absolute() / checked_name(name)
        self.pipes = self.path / "pipe"
        self.logs = self.path / "log"
        self.output = self.logs / "output"
        self.clients = self.path / "clients"
        self.shm = self.path / "shm"
        self.record = self.path / "daemon.json"
        self.control_socket = self.pipes / CLIENT_SOCKET
        checked_socket_path(self.pipes / LONGEST_SOCKET)

    def environment(self) -> dict[str, str]:
        """The variables by which the daemon, its control program and its clients find each other."""
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(self.logs)}

    def write(self, daemon: MpsDaemon) -> None:
        """Record durably what is to run; raises StorageError."""
        with storage_errors(self.path, "making"):
            make_folder(self.path)
        write_durably(self.record, write_spec(daemon))

    def read(self) -> MpsDaemon | None:
        """What is to run; None without a record. A record that cannot be decoded is put aside.

        Raises StorageError if the file cannot be read now.
        """
        with storage_errors(self.record, "reading"):
            try:
                with open(self.record, "rb", opener=regular_only) as file:
                    data = file.read()
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                data = b""  # it is no file
        try:
            daemon = read_spec(data)
            if daemon.name != self.path.name:
                raise ValueError(f"it belongs to {daemon.name}")
            return daemon
        except (ValueError, ClaimRefused) as error:
            aside = put_aside(self.record)
            _log.error("cannot read the record of an MPS daemon", put_aside_as=str(aside), error=str(error))
            return None

    def let_clients_in(self) -> None:
        """Show clients the socket of the daemon that serves now; raises StorageError."""
        # A hard link: a symbolic link would lead to a path that containers do not have.
        shown = self.clients / CLIENT_SOCKET
        with storage_errors(shown, "making"):
            make_folder(self.clients, CLIENTS_MODE)
            if not (shown.exists() and shown.samefile(self.control_socket)):
                shown.unlink(missing_ok=True)
                shown.hardlink_to(self.control_socket)

    def make_ready(self) -> None:
        """Empty the folders of sockets and begin new logs, before a start; raises StorageError."""
        # The folders are emptied and not replaced: containers keep theirs mounted during a restart.
        with storage_errors(self.path, "preparing"):
            for folder in (self.path, self.pipes, self.logs):
                make_folder(folder)
            make_folder(self.clients, CLIENTS_MODE)
            for left in (*self.pipes.iterdir(), *self.clients.iterdir()):
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                else:
                    left.unlink()
            for name in _LOGS:
                _rotate(self.logs / name)

    def remove(self) -> None:
        """Remove everything; raises StorageError."""
        if self.path.is_dir():
            # The record first: after a crash, a supervisor does not start the daemon again.
            remove_durably(self.record)
            with storage_errors(self.path, "removing"):
                shutil.rmtree(self.path)

    def last_words(self) -> str:
        """What the daemon printed and the last lines of its log, for messages; empty without any."""
        printed, logged = _quoted(_tail(self.output)), _quoted(_tail(self.logs / _LOGS[0]))
        parts = [printed] if printed else []
        if logged:
            parts.append(f"{self.logs / _LOGS[0]} ends with: {logged}")
        return "; ".join(parts)


def make_folder(path: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder with this mode, whatever the umask; raises OSError."""
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_mode & 0o777 != mode:
        path.chmod(mode)


def _quoted(text: str) -> str:
    # Clients write into the logs, so the text is cut, and control characters are replaced.
    return "".join(letter if letter.isprintable() else "?" for letter in text[-_MOST_QUOTED:])


def _rotate(log: Path) -> None:
    """Keep the previous daemon's log as ``.1``, unless it is too large; raises OSError."""
    before = log.with_name(f"{log.name}.1")
    before.unlink(missing_ok=True)
    if not log.exists():
        return
    if log.stat().st_size > _MOST_KEPT_BYTES:
        log.unlink()
    else:
        log.rename(before)


def known_names(mps_dir: Path) -> list[str]:
    """The daemons that have a record or a pipe directory, sorted; raises StorageError."""
    names = []
    with storage_errors(mps_dir, "reading"):
        for entry in sorted(mps_dir.iterdir()):
            if (entry / "daemon.json").exists() or (entry / "pipe").is_dir():
                try:
                    names.append(checked_name(entry.name))
                except ClaimRefused as error:
                    _log.warning(
                        "folder does not belong to an MPS daemon", folder=str(entry), error=str(error)
                    )
    return names


def _tail(path: Path) -> str:
    """The last lines of a file on one line; empty if there are none."""
    try:
        with open(path, "rb", opener=regular_only) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " / ".join(line.strip() for line in lines[-_TAIL_LINES:] if line.strip())
