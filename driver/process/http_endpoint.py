"""A small HTTP server at ``host:port``, for numbers and probes; what it answers is the handler's."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from driver.errors import ConfigError
from driver.process.log import get_logger
from driver.process.places import Place, Places

REQUEST_SECONDS = 2.0
"""How long a request may take from the connection to its last byte."""

ANSWER_SECONDS = 10.0
"""How long a client may take to read the answer."""

MOST_CONNECTIONS = 32
"""How many may be open, each with a thread."""

if TYPE_CHECKING:
    from collections.abc import Callable

_log = get_logger(__name__)


class Server(HTTPServer):
    """Serves each connection in a thread; a handler tells ``places`` when it has read its whole request."""

    # How many connections the kernel keeps until they are accepted: a burst must not cost a probe a second.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        most_connections: int = MOST_CONNECTIONS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Bind; an empty host is all interfaces of both families. Raises OSError or OverflowError."""
        if ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        self.places = Places(most_connections, request_seconds)
        # Those that gave way take a moment to end, those that wait for an answer of ours may take longer.
        self._threads = threading.BoundedSemaphore(2 * most_connections)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind; HTTPServer's own way also asks the name service for the host's full name, which can hang."""
        if self.address_family == socket.AF_INET6:
            # Whether "::" means IPv4 as well depends on a setting of the machine, unless it is said.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(self.server_address[0] != ""))
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; none of them keeps the process from ending."""
        if not self._threads.acquire(blocking=False):
            _log.warning("connection closed: all threads are at work")
            self.shutdown_request(request)
            return
        place = self.places.take(str(client_address[0]), request)
        threading.Thread(target=self._serve, args=(place, client_address), daemon=True).start()

    def service_actions(self) -> None:
        """End requests that take too long; called twice a second."""
        self.places.end_late()

    def secure(self, place: Place) -> None:
        """Put the connection to read from in its place. Raises OSError."""

    def _serve(self, place: Place, client_address: Any) -> None:
        try:
            self.secure(place)
            self.finish_request(place.connection, client_address)
        except OSError as error:  # the client went away, took too long, or had to give way
            _log.debug("connection failed", error=type(error).__name__)
        except Exception:  # noqa: BLE001 - the next connection must be served whatever this one did
            _log.exception("request failed")
        finally:
            self.places.leave(place)
            self.shutdown_request(place.connection)
            self._threads.release()


class HttpEndpoint:
    """An HTTP server; bound when made, serving while ``run`` blocks."""

    def __init__(
        self, address: str, server: Callable[[tuple[str, int]], Server], *, what: str, flag: str
    ) -> None:
        """Bind ``host:port``, ``[address]:port`` of IPv6, or ``:port`` for all interfaces of both families.

        Port 0 is any free one. Messages name what is served, and the flag that gives the address. Raises
        ConfigError when the address is none or cannot be bound.
        """
        try:
            self._server = server(_host_and_port(address, what))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve {what} at {address}: {error}", f"give {flag} a free host:port"
            ) from error

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
        self._server.shutdown()


def _host_and_port(address: str, what: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(
            f"{address!r} is no address for {what}", "write host:port, for example 127.0.0.1:9400"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
