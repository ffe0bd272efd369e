"""Serves gRPC on a unix socket that it binds safely, and takes away again when it stops."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from driver.errors import ConfigError
from driver.process.log import get_logger
from driver.process.sockets import checked_socket_path

WORKERS = 128
"""Workers of the pool that the servers share: calls of many pods, and the few long streams.

NVML takes its time to make a partition, and calls for one GPU wait for each other. So this is enough for
seven partitions on each of sixteen GPUs. A thread is made when it is first needed.
"""

GRACE_SECONDS = 5.0
"""How long calls that run when the server stops may take to finish."""

SOCKET_MODE = 0o600
FOLDER_MODE = 0o750

_ANSWER_SECONDS = 2.0
_log = get_logger(__name__)


class SocketServer:
    """One gRPC server on one unix socket.

    It sets no limit on the age of connections: the kubelet keeps a single one for ever, and removes
    the node's slices when that stays away.
    """

    def __init__(
        self, path: Path, handlers: Iterable[grpc.GenericRpcHandler], pool: ThreadPoolExecutor
    ) -> None:
        """Prepare to serve ``handlers`` at ``path`` with the workers of ``pool``, which it does not own.

        Raises ConfigError when the path is too long for a socket.
        """
        self.path = checked_socket_path(path.absolute())
        self._handlers = tuple(handlers)
        self._pool = pool
        self._server: grpc.Server | None = None
        self._inode: int | None = None

    def start(self) -> None:
        """Bind the socket and answer calls.

        A socket that nobody answers any more is replaced. Raises ConfigError when something else
        lies there, a live server answers, or the folder cannot be used.
        """
        try:
            self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            refuse_if_taken(self.path)
            self._bind()
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"cannot serve at {self.path}: {error}", "give a folder that this process may write to"
            ) from error
        _log.info("serving", socket=str(self.path))

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Remove the socket, so that nobody comes any more, and let running calls finish."""
        server, self._server = self._server, None
        if server is None:
            return
        self._remove_own_socket()
        server.stop(grace_seconds).wait()
        _log.info("stopped serving", socket=str(self.path))

    def _bind(self) -> None:
        # Bound under a hidden name of the same length, which the kubelet ignores, and renamed when
        # it is private and answers. gRPC removes the path that it bound whatever lies there by
        # then: this way that is never the socket of the instance that comes after this one.
        hidden = self.path.with_name(f".{self.path.name[1:]}")
        refuse_if_taken(hidden)
        server = grpc.server(self._pool)
        server.add_generic_rpc_handlers(self._handlers)
        server.add_insecure_port(f"unix:{hidden}")
        hidden.chmod(SOCKET_MODE)
        self._inode = hidden.lstat().st_ino
        server.start()
        self._server = server
        hidden.rename(self.path)

    def _remove_own_socket(self) -> None:
        try:
            # A later instance may have put its own socket here already.
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("could not remove socket", socket=str(self.path), error=str(error))


def refuse_if_taken(path: Path) -> None:
    """Make sure that ``path`` may be bound: nothing is there, or a socket that nobody answers.

    Raises ConfigError when a server answers or when it is no socket, OSError when that cannot be
    told.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is there and is no socket", "remove it or give another folder")
    if is_answered(path):
        raise ConfigError(
            f"another server answers at {path}",
            "stop it, or give this instance its pod's UID for a socket of its own",
        )


def is_answered(path: Path) -> bool:
    """Whether a server listens at the socket ``path``; raises OSError when that cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_SECONDS)
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (TimeoutError, BlockingIOError):  # its backlog is full, so somebody owns it
            return True
        return True
