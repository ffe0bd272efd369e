"""Serves gRPC on a unix socket, which is bound safely and removed when the server stops."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from driver.errors import ConfigError
from driver.process.log import get_logger
from driver.process.sockets import checked_socket_path

WORKERS = 128
"""Workers of the pool that the servers share, for the calls of many pods and the few long streams.

Making a partition takes NVML a while, and calls for one GPU wait for each other. This is enough for seven
partitions on each of sixteen GPUs. A thread is started when it is first needed.
"""

GRACE_SECONDS = 5.0
"""How long running calls may take to finish when the server stops."""

SOCKET_MODE = 0o600
FOLDER_MODE = 0o750

_ANSWER_SECONDS = 2.0
_log = get_logger(__name__)


class SocketServer:
    """One gRPC server on one unix socket."""

    # No limit on the age of connections is set. The kubelet keeps a single connection for ever, and deletes
    # the driver's slices of the node if it stays broken for 30 s.

    def __init__(
        self, path: Path, handlers: Iterable[grpc.GenericRpcHandler], pool: ThreadPoolExecutor
    ) -> None:
        """Prepare to serve ``handlers`` at ``path`` with the workers of ``pool``, which it does not own.

        Raises ConfigError if the path is too long for a socket.
        """
        self.path = checked_socket_path(path.absolute())
        self._handlers = tuple(handlers)
        self._pool = pool
        self._server: grpc.Server | None = None
        self._inode: int | None = None

    def start(self) -> None:
        """Bind the socket and answer calls; an old socket that nobody answers is replaced.

        Raises ConfigError if there is something else at the path, a server answers, or the folder cannot be
        used.
        """
        try:
            self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            refuse_if_taken(self.path)
            self._bind()
        except (OSError, RuntimeError) as error:
            raise ConfigError(
                f"cannot serve at {self.path}: {error}", "give a folder to which this process may write"
            ) from error
        _log.info("serving", socket=str(self.path))

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Remove the socket, so that nobody connects any more, and let running calls finish."""
        server, self._server = self._server, None
        if server is None:
            return
        self._remove_own_socket()
        server.stop(grace_seconds).wait()
        _log.info("stopped serving", socket=str(self.path))

    def _bind(self) -> None:
        # Bound under a hidden name of the same length, which the kubelet ignores, and renamed once it has
        # its mode and answers. At its end gRPC removes the path that it bound, whatever is there by then:
        # so it never removes the socket of the next instance of the plugin.
        hidden = self.path.with_name(f".{self.path.name[1:]}")
        refuse_if_taken(hidden)
        # Nobody else can open the socket between bind and chmod: its folder lets only this user in.
        server = grpc.server(self._pool)
        server.add_generic_rpc_handlers(self._handlers)
        server.add_insecure_port(f"unix:{hidden}")
        # connect(2) needs the right to write to the socket.
        hidden.chmod(SOCKET_MODE)
        self._inode = hidden.lstat().st_ino
        server.start()
        self._server = server
        # A rename replaces an old socket in one step, so the path is never without one.
        hidden.rename(self.path)

    def _remove_own_socket(self) -> None:
        try:
            # The next instance of the plugin may have put its own socket here already.
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("cannot remove the socket", socket=str(self.path), error=str(error))


def refuse_if_taken(path: Path) -> None:
    """Check that ``path`` may be bound: nothing is there, or a socket that nobody answers.

    Raises ConfigError if a server answers or the file is not a socket, OSError if that cannot be found out.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} exists and is not a socket", "remove it, or give another folder")
    if is_answered(path):
        raise ConfigError(
            f"another server answers at {path}",
            "stop it, or give this instance its pod's UID for a socket of its own",
        )


def is_answered(path: Path) -> bool:
    """Whether a server listens at the socket ``path``; raises OSError if that cannot be found out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_SECONDS)
        try:
            client.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (TimeoutError, BlockingIOError):
            # Linux answers EAGAIN if the backlog of a listening socket is full, so somebody owns it.
            return True
        return True


def unary_method(answer: Any, request: Any, response: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of a method with one answer; ``request`` and ``response`` are classes of messages."""
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def stream_method(answers: Any, request: Any, response: Any) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of a method with a stream of answers; see ``unary_method``."""
    return grpc.unary_stream_rpc_method_handler(
        answers, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )
