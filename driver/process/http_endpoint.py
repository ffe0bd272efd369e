"""A small HTTP server at ``host:port``, for numbers and probes; what it answers is the handler's."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, has_dualstack_ipv6
from socketserver import TCPServer
from typing import Any

from driver.errors import ConfigError
from driver.process.log import get_logger

CLIENT_SECONDS = 10
"""How long a client may take for its request, and for reading the answer."""


MOST_CONNECTIONS = 32
"""How many may be open, each with a thread; more are closed at once."""

_log = get_logger(__name__)


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, *_: object) -> None:
        # Its own way is to print to stderr, between the lines of the log.
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the client went away
            _log.debug("connection failed", error=type(error).__name__)
        else:
            _log.error("request failed", exc_info=error)

    def server_bind(self) -> None:
        # HTTPServer's own also asks the name service for the host's full name, which can hang.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Server6(_Server):
    address_family = AF_INET6

    def server_bind(self) -> None:
        # Whether "::" means IPv4 as well depends on a setting of the machine, unless it is said.
        self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
        super().server_bind()


class HttpEndpoint:
    """An HTTP server; bound when made, serving while ``run`` blocks."""

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler], *, what: str, flag: str) -> None:
        """Bind ``host:port``, ``[address]:port`` of IPv6, or ``:port`` for all interfaces of both families.

        Port 0 is any free one. Messages name what is served, and the flag that gives the address. Raises
        ConfigError when the address is none or cannot be bound.
        """
        host, port = _host_and_port(address, what)
        version_6 = ":" in host or (not host and has_dualstack_ipv6())
        try:
            self._server = (_Server6 if version_6 else _Server)((host, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve {what} at {address}: {error}", f"give {flag} a free host:port"
            ) from error

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_address[1])

    def run(self) -> None:
        """Answer requests until ``stop`` is called from another thread, then let the address go."""
        with self._server:
            self._server.serve_forever()

    def stop(self) -> None:
        """End ``run``, which must be running or about to run."""
        self._server.shutdown()


def _host_and_port(address: str, what: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(
            f"{address!r} is no address for {what}", "write host:port, for example 127.0.0.1:9400"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
