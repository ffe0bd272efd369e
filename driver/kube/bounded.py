"""Connections with a deadline for the whole request, however slowly its answer arrives.

A socket's timeout is for each single read. A server, or a proxy before it, that sends a byte now and then
would hold a thread for ever. Here the timeout that urllib3 gives a request covers everything from the first
byte of the request to the last byte of the answer. It does not cover looking up the server's name.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import LocationValueError, ProtocolError

AT_ONCE = 16
"""So many whole requests are sent at once, the others wait for one of these connections.

More would only open more connections, each with a TLS handshake that takes longer than ten requests.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Arriving(io.RawIOBase):
    """The bytes that arrive at a socket until a deadline: the socket's timeout after this object was made.

    A read after the deadline, or that lasts until then, raises TimeoutError.
    """

    def __init__(
        self, connected: socket.socket, raw: io.RawIOBase, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``raw`` is from the socket's ``makefile``; it keeps the socket open until this object is closed."""
        self._socket = connected
        self._raw = raw
        self._clock = clock
        self._idle_seconds: float | None = None
        self._until = clock() + _seconds(connected.gettimeout())

    def allow_pauses(self, idle_seconds: float) -> None:
        """From here on there is no deadline, but a read raises TimeoutError after ``idle_seconds``."""
        self._idle_seconds = idle_seconds

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Wait for some bytes; 0 is the end."""
        _give(self._socket, self._until - self._clock() if self._idle_seconds is None else self._idle_seconds)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the stream, and so let go of the socket."""
        self._raw.close()
        super().close()


class BoundedHTTPConnection(HTTPConnection):
    """Connects, sends and receives, all within the timeout of the request."""

    arriving: Arriving
    """The answer of the latest request."""
    _until: float = math.inf

    def connect(self) -> None:
        """Connect; the time that it takes is taken from the rest of the request."""
        began = time.monotonic()
        super().connect()
        if self.timeout is not None:
            self.timeout = max(0.0, _seconds(self.timeout) - (time.monotonic() - began))

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request."""
        self._until = time.monotonic() + _seconds(self.timeout)
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        """Send a part of the request."""
        if self.sock is not None:
            # An idle connection still has the timeout of the request before.
            _give(self.sock, self._until - time.monotonic())
        super().send(data)

    def exchange(
        self, verb: str, target: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> Answer:
        """Send a request and read its answer as http.client does; raises as ``DirectPool.exchange``."""
        self.timeout = max(0.0, seconds)
        if self.sock is None:
            self.connect()
        self._until = time.monotonic() + self.timeout
        try:
            http.client.HTTPConnection.request(self, verb, target, body, headers)
            response = http.client.HTTPConnection.getresponse(self)
            names = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, names, response.read())
        except (http.client.HTTPException, ConnectionError) as error:
            raise ProtocolError(f"the connection broke: {error}") from error
        except ValueError as error:
            raise LocationValueError(f"the request cannot be sent: {error}") from error

    # http.client calls this attribute like a class to make the answer.
    def response_class(self, connected: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:  # type: ignore[override] # called as the class that it stands for
        """Make the answer, which is read from ``arriving``."""
        response = http.client.HTTPResponse(connected, *args, **kwargs)
        self.arriving = Arriving(connected, response.fp.detach())
        # http.client reads from ``fp``, so this is the one place through which every byte of the answer
        # comes.
        response.fp = io.BufferedReader(self.arriving)
        return response


class BoundedHTTPSConnection(BoundedHTTPConnection, HTTPSConnection):
    """The same over TLS. The handshake is a part of connecting."""


class DirectPool(HTTPConnectionPool):
    """Connections to one server. ``exchange`` sends a whole request without the layers of urllib3.

    For a claim, those layers take longer than http.client, which does the work.
    """

    ConnectionCls = BoundedHTTPConnection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def exchange(
        self, verb: str, target: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> Answer:
        """Send a request and read its answer within the time.

        Raises OSError or HTTPError of urllib3: ProtocolError if a connection was closed before the answer was
        complete.
        """
        until = time.monotonic() + seconds
        if not self._places.acquire(timeout=seconds):
            raise TimeoutError("timed out")
        try:
            connection = cast("BoundedHTTPConnection", self._get_conn())
            try:
                return connection.exchange(verb, target, headers, body, until - time.monotonic())
            except BaseException:
                connection.close()
                raise
            finally:
                self._put_conn(connection)
        finally:
            self._places.release()


class _DirectHTTPSPool(DirectPool, HTTPSConnectionPool):
    ConnectionCls = BoundedHTTPSConnection


def bounded(transport: PoolManager) -> PoolManager:
    """Give the connections that the manager makes from here on such deadlines; returns the manager."""
    # urllib3 looks here for the class of new connections.
    transport.pool_classes_by_scheme = {"http": DirectPool, "https": _DirectHTTPSPool}
    return transport


def direct_pool(transport: PoolManager, server: str) -> tuple[DirectPool | None, str]:
    """The connections to the server at this URL, None behind a proxy, and the path of the URL."""
    pool = transport.connection_from_url(server)
    is_direct = isinstance(pool, DirectPool) and pool.proxy is None
    return (cast("DirectPool", pool) if is_direct else None), urlsplit(server).path


def _seconds(timeout: Any) -> float:
    return math.inf if timeout is None else float(timeout)


def _give(connected: socket.socket, seconds: float) -> None:
    """Give the next operation on the socket this many seconds; raises TimeoutError if none are left."""
    if seconds <= 0:
        raise TimeoutError("timed out")
    connected.settimeout(None if seconds == math.inf else seconds)
