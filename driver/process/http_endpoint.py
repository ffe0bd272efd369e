"""A small HTTP server at ``host:port``, for metrics and probes. The handler decides what it answers.

The number of open connections is limited, and no client can lock others out by holding connections open. When
all places are taken, the host with the most connections loses its oldest. So a host with a single connection,
like a kubelet, keeps it. If a request does not arrive in time, its connection is closed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(eq=False)
class Place:
    """An open connection, its host, and when it began; ``is_read`` once its whole request has arrived."""

    host: str
    connection: socket.socket
    began: float
    is_read: bool = False

    def end(self) -> None:
        """End the connection, whatever its thread does with it at the moment."""
        # It may have ended already.
        with suppress(OSError):
            # Not the shutdown() of SSLSocket: it drops the TLS object, which the thread may just be using.
            # shutdown(2) wakes a thread that is blocked in recv on the connection; close(2) would not.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class Places:
    """The open connections of one server, ``most`` at a time; safe to use from every thread."""

    def __init__(
        self, most: int, request_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nobody is there; a request may take ``request_seconds`` from the connection to its last byte."""
        self._most = most
        self._request_seconds = request_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: list[Place] = []
        """In the order in which they came."""

    def take(self, host: str, connection: socket.socket) -> Place:
        """Give a connection a place; if all are taken, another connection is ended for it."""
        place = Place(host, connection, self._clock())
        with self._lock:
            ended = self._connection_to_end(host) if len(self._taken) >= self._most else None
            if ended is not None:
                self._taken.remove(ended)
            self._taken.append(place)
        if ended is not None:
            ended.end()
        return place

    def leave(self, place: Place) -> None:
        """Free the place of a connection that is over."""
        # A connection that had to give way is not in the list any more.
        with self._lock, suppress(ValueError):
            self._taken.remove(place)

    def has_read(self, connection: socket.socket) -> None:
        """Note that the whole request of a connection has arrived."""
        with self._lock:
            for place in self._taken:
                if place.connection is connection:
                    place.is_read = True

    def end_late(self) -> None:
        """End the connections whose request has not arrived in time."""
        latest = self._clock() - self._request_seconds
        with self._lock:
            late = [place for place in self._taken if not place.is_read and place.began < latest]
        for place in late:
            place.end()

    def _connection_to_end(self, newcomer: str) -> Place:
        """The oldest connection of the host with the most, counting the newcomer. The lock is held."""
        counted = Counter([newcomer, *(place.host for place in self._taken)])
        # The list is in the order of arrival, and max() returns the first of equals: the oldest.
        return max(self._taken, key=lambda place: counted[place.host])


class Server(HTTPServer):
    """Serves each connection in a thread. A handler reports to ``places`` that its request is complete."""

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
        self.places = Places(most_connections, request_seconds)
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
        place = self.places.take(str(client_address[0]), request)
        try:
            threading.Thread(target=self._serve, args=(place, client_address), daemon=True).start()
        except RuntimeError as error:
            _log.warning("connection closed, since no thread can be started", error=str(error))
            self._end(place)

    # serve_forever calls this after each turn of its loop, every half second.
    def service_actions(self) -> None:
        """End requests that take too long; called twice a second."""
        self.places.end_late()

    def secure(self, place: Place) -> None:
        """Replace the connection in its place by a secure one, for subclasses with TLS. Raises OSError."""

    def _serve(self, place: Place, client_address: Any) -> None:
        try:
            self.secure(place)
            self.finish_request(place.connection, client_address)
        except OSError as error:
            # The client went away, was too slow, or had to give way.
            _log.debug("connection failed", error=type(error).__name__)
        except Exception:  # noqa: BLE001 - the next connection must be served whatever this one did
            _log.exception("request failed")
        finally:
            self._end(place)

    def _end(self, place: Place) -> None:
        self.places.leave(place)
        self.shutdown_request(place.connection)
        self._threads.release()


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
