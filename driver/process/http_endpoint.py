"""A small HTTP server at ``host:port``, for numbers and probes; what it answers is the handler's.

It keeps its open connections few, so that clients who hold them open cannot lock others out. A client may
open as many connections as it likes. When all places are taken, the host that has most of them loses
its oldest; so a host with a single connection, as a kubelet has, keeps it. A request that is not read in time
ends with its connection.
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
"""How many may be open, each with a thread."""

_log = get_logger(__name__)


@dataclass(eq=False)
class Place:
    """An open connection, the host it came from, and when; ``is_read`` once its whole request has arrived."""

    host: str
    connection: socket.socket
    began: float
    is_read: bool = False

    def end(self) -> None:
        """End the connection, whatever its thread does with it at the moment."""
        with suppress(OSError):  # it has ended already
            # That of a TLS connection would also take away what its thread reads with.
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
        """Give a connection a place; another one ends for it when all are taken."""
        place = Place(host, connection, self._clock())
        with self._lock:
            gives_way = self._who_gives_way(host) if len(self._taken) >= self._most else None
            if gives_way is not None:
                self._taken.remove(gives_way)
            self._taken.append(place)
        if gives_way is not None:
            gives_way.end()
        return place

    def leave(self, place: Place) -> None:
        """Free the place of a connection that is over."""
        with self._lock, suppress(ValueError):  # it had to give way before
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

    def _who_gives_way(self, newcomer: str) -> Place:
        """The oldest of the host that has most, with the one that comes; the lock is held."""
        counted = Counter([newcomer, *(place.host for place in self._taken)])
        return max(self._taken, key=lambda place: counted[place.host])  # the first of equals


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
