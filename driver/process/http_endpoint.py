"""A small HTTP server at ``host:port``, for metrics and probes. The handler decides what it answers.

The number of open connections is limited, and no client can lock others out by holding connections open: one
too many ends the oldest. A probe is answered long before it is that. A request that does not arrive in time
ends with its connection.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import Any

from driver.errors import ConfigError
from driver.process.log import get_logger

REQUEST_SECONDS = 2.0
"""How long a request may take from the connection to its last byte."""

ANSWER_SECONDS = 10.0
"""How long a client may take to read the answer."""

MOST_CONNECTIONS = 32
"""How many connections may be open. Each has a thread."""

_log = get_logger(__name__)


class Server(HTTPServer):
    """Serves each connection in a thread. A handler calls ``has_read`` once its request is complete."""

    # listen(2)'s backlog. If it is full, the kernel drops SYNs, and a client sends the next after a second.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        most_connections: int = MOST_CONNECTIONS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Bind; an empty host is all interfaces of both families. Raises OSError or OverflowError."""
        # An IPv6 socket serves both families, if the kernel has IPv6.
        if ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        self._most_connections = most_connections
        self._request_seconds = request_seconds
        self._lock = threading.Lock()
        # The open connections in the order in which they came, and when their requests must be complete.
        self._open: dict[socket.socket, float] = {}
        # More threads than connections: a thread whose connection gave way takes a moment to end.
        self._threads = threading.BoundedSemaphore(2 * most_connections)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind, without HTTPServer's look-up of the host's full name."""
        if self.address_family == socket.AF_INET6:
            # Otherwise net.ipv6.bindv6only of the machine decides whether "::" includes IPv4.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(self.server_address[0] != ""))
        # HTTPServer.server_bind calls socket.getfqdn(), which asks the name service and can hang.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a daemon thread of its own."""
        if not self._threads.acquire(blocking=False):
            _log.warning("connection closed, since all threads are busy")
            self.shutdown_request(request)
            return
        with self._lock:
            is_full = len(self._open) >= self._most_connections
            if oldest := next(iter(self._open), None) if is_full else None:
                del self._open[oldest]
            self._open[request] = time.monotonic() + self._request_seconds
        if oldest is not None:
            _cut(oldest)
        try:
            threading.Thread(target=self._serve, args=(request, client_address), daemon=True).start()
        except RuntimeError as error:
            _log.warning("connection closed, since no thread can be started", error=str(error))
            self._end(request)

    def has_read(self, connection: socket.socket) -> None:
        """The request of a connection is complete, and so cannot be late any more."""
        with self._lock:
            # One that had to give way is not there any more.
            if connection in self._open:
                self._open[connection] = math.inf

    # serve_forever calls this after each turn of its loop, every half second.
    def service_actions(self) -> None:
        """End requests that take too long; called twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, until in self._open.items() if until < now]
        for connection in late:
            _cut(connection)

    def secured(self, connection: socket.socket) -> socket.socket:
        """The connection over which the request is read, before its handshake, for subclasses with TLS."""
        return connection

    def shake_hands(self, connection: socket.socket) -> None:
        """Make the handshake of a connection from ``secured``. Raises OSError."""

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        try:
            secured = self.secured(connection)
            with self._lock:
                # In place of the plain one, so that a slow handshake can be ended. One that had to give way
                # meanwhile is late at once.
                self._open[secured] = self._open.pop(connection, 0.0)
            connection = secured
            self.shake_hands(connection)
            self.finish_request(connection, client_address)
        except OSError as error:
            # The client went away, was too slow, or had to give way.
            _log.debug("connection failed", error=type(error).__name__)
        except Exception:  # noqa: BLE001 - the next connection must be served whatever this one did
            _log.exception("request failed")
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
        self.shutdown_request(connection)
        self._threads.release()


def _cut(connection: socket.socket) -> None:
    """End a connection, whatever its thread does with it at the moment."""
    # It may have ended already.
    with suppress(OSError):
        # Not the shutdown() of SSLSocket: it drops the TLS object, which the thread may just be using.
        # shutdown(2) wakes a thread that is blocked in recv on the connection; close(2) would not.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class HttpEndpoint:
    """An HTTP server; bound when made, serving while ``run`` blocks."""

    def __init__(
        self, address: str, server: Callable[[tuple[str, int]], Server], *, what: str, flag: str
    ) -> None:
        """Bind ``host:port``, ``[address]:port`` of IPv6, or ``:port`` for all interfaces of both families.

        Port 0 is any free port. Messages say what is served, and which flag gives the address. Raises
        ConfigError if the address is not valid or cannot be bound.
        """
        try:
            self._server = server(_host_and_port(address, what))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve {what} at {address}: {error}", f"give {flag} a free host:port"
            ) from error
        # With port 0 nothing else says where.
        _log.info(f"serving {what}", port=self.port)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._server.server_port

    def run(self) -> None:
        """Answer requests until ``stop`` is called from another thread, then let the address go."""
        with self._server:
            self._server.serve_forever()

    def stop(self) -> None:
        """End ``run``, which must be running or about to run."""
        # serve_forever notices it within half a second. Without a running serve_forever this would wait for
        # ever.
        self._server.shutdown()


def _host_and_port(address: str, what: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(
            f"{address!r} is not an address for {what}", "write host:port, for example 127.0.0.1:9400"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
