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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import LocationValueError, ProtocolError

AT_ONCE = 16
"""So many whole requests are sent at once, the others wait for one of these connections.

More would only open more connections, each with a TLS handshake that takes longer than ten requests.
"""

_PIECE_BYTES = 1 << 14
_MOST_HEAD_BYTES = 1 << 16
_IN_TARGET = "/?&=%:,;+@!$'()*~-._"


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


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class DirectPool(HTTPConnectionPool):
    """Connections to one server. ``exchange`` sends a whole request without the layers of urllib3.

    For a claim, those layers and http.client would take ten times as long as sending and reading.
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
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{verb} {quote(target, safe=_IN_TARGET)} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if any("\r" in line or "\n" in line for line in lines):
            raise LocationValueError("a header of the request has a line break")
        until = time.monotonic() + seconds
        if not self._places.acquire(timeout=seconds):
            raise TimeoutError("timed out")
        try:
            return self._on_connection("\r\n".join([*lines, "", ""]).encode() + (body or b""), until)
        finally:
            self._places.release()

    def _on_connection(self, request: bytes, until: float) -> Answer:
        connection = cast("BoundedHTTPConnection", self._get_conn())
        is_kept = False
        try:
            if connection.is_closed:
                connection.timeout = max(0.0, until - time.monotonic())
                connection.connect()
            answer, is_kept = exchange(connection.sock, request, until)
        except TimeoutError:
            raise
        except (ConnectionError, ValueError) as error:
            raise ProtocolError(f"the connection broke: {error}") from error
        finally:
            if not is_kept:
                connection.close()
            self._put_conn(connection)
        return answer


class _DirectHTTPSPool(DirectPool, HTTPSConnectionPool):
    ConnectionCls = BoundedHTTPSConnection


class _Incoming:
    """The bytes of an answer as they arrive until a deadline."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket = connected
        self._until = until
        self._rest = b""

    def up_to(self, end: bytes) -> bytes:
        """The bytes before the next ``end``, which is skipped."""
        while (at := self._rest.find(end)) < 0:
            if len(self._rest) > _MOST_HEAD_BYTES:
                raise ValueError("a part of the answer's head is too long")
            if not (piece := self._piece()):
                raise ConnectionResetError("it was closed before the answer ended")
            self._rest += piece
        found, self._rest = self._rest[:at], self._rest[at + len(end) :]
        return found

    def exactly(self, size: int) -> bytes:
        """So many bytes."""
        pieces, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            if not (piece := self._piece()):
                raise ConnectionResetError("it was closed before the answer ended")
            pieces.append(piece)
            missing -= len(piece)
        whole = b"".join(pieces)
        self._rest = whole[size:]
        return whole[:size]

    def all(self) -> bytes:
        """Everything until the server closes the connection."""
        pieces = [self._rest]
        while piece := self._piece():
            pieces.append(piece)
        return b"".join(pieces)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has arrived after what was read."""
        return not self._rest

    def _piece(self) -> bytes:
        _give(self._socket, self._until - time.monotonic())
        return self._socket.recv(_PIECE_BYTES)


def exchange(connected: socket.socket, request: bytes, until: float) -> tuple[Answer, bool]:
    """Send a request; returns the answer, and whether the connection can be used again (RFC 9112).

    Raises OSError, or ValueError if it is no answer of HTTP/1.
    """
    _give(connected, until - time.monotonic())
    connected.sendall(request)
    incoming = _Incoming(connected, until)
    status = 100
    while status < 200:  # before the answer there may be others, such as 100 Continue
        first, *fields = incoming.up_to(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, code, *_ = first.split(" ", 2)
        status = int(code)
    if not version.startswith("HTTP/1."):
        raise ValueError(f"it is no answer of HTTP/1: {first[:100]!r}")
    pairs = (field.partition(":") for field in fields)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    is_kept = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    if status in (204, 304):
        data = b""
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        data = b"".join(_chunks(incoming))
    elif (length := headers.get("content-length")) is not None:
        data = incoming.exactly(int(length))
    else:
        data, is_kept = incoming.all(), False
    return Answer(status, headers, data), is_kept and incoming.is_empty


def _chunks(incoming: _Incoming) -> Iterator[bytes]:
    while size := int(incoming.up_to(b"\r\n").partition(b";")[0], 16):
        yield incoming.exactly(size)
        incoming.up_to(b"\r\n")
    while incoming.up_to(b"\r\n"):
        pass  # trailers


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
