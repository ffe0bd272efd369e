"""Connections that keep to a deadline for the whole of a request, however slowly its answer drips in.

A socket's timeout is one for each read: a server, or a proxy before it, that sends a byte now and then
would hold a thread for ever. Here the timeout that urllib3 gives a request holds from its first byte out
to the last byte of its answer. Looking up the server's name is not covered.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import time
from collections.abc import Callable
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection


class Arriving(io.RawIOBase):
    """What arrives at a socket until a deadline: the socket's timeout, counted from the making of this.

    A read after it raises TimeoutError, as does one that it interrupts.
    """

    def __init__(
        self, connected: socket.socket, raw: io.RawIOBase, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``raw`` is what the socket's ``makefile`` made; it keeps the socket open until this is closed."""
        self._socket = connected
        self._raw = raw
        self._clock = clock
        self._idle_seconds: float | None = None
        self._until = clock() + _seconds(connected.gettimeout())

    def allow_pauses(self, idle_seconds: float) -> None:
        """Let it arrive without a deadline from here on, but never ``idle_seconds`` without a byte."""
        self._idle_seconds = idle_seconds

    def readable(self) -> bool:
        """It is for reading only."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Wait for some bytes; 0 is the end."""
        _give(self._socket, self._until - self._clock() if self._idle_seconds is None else self._idle_seconds)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class BoundedHTTPConnection(HTTPConnection):
    """Connects, sends and receives within the timeout of the request."""

    arriving: Arriving
    """The answer of the latest request."""
    _until: float = math.inf

    def connect(self) -> None:
        """Connect; what that takes is no longer there for the rest."""
        began = time.monotonic()
        super().connect()
        if self.timeout is not None:
            self.timeout = max(0.0, _seconds(self.timeout) - (time.monotonic() - began))

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request."""
        self._until = time.monotonic() + _seconds(self.timeout)
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        """Send a part of the request; an idle connection still has the timeout of the request before."""
        if self.sock is not None:
            _give(self.sock, self._until - time.monotonic())
        super().send(data)

    def response_class(self, connected: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:  # type: ignore[override] # called as the class that it stands for
        """The answer, which is read from ``arriving``."""
        response = http.client.HTTPResponse(connected, *args, **kwargs)
        self.arriving = Arriving(connected, response.fp.detach())
        response.fp = io.BufferedReader(self.arriving)
        return response


class BoundedHTTPSConnection(BoundedHTTPConnection, HTTPSConnection):
    """The same over TLS, whose handshake is a part of connecting."""


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = BoundedHTTPConnection


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = BoundedHTTPSConnection


def bounded(transport: PoolManager) -> PoolManager:
    """The same manager, whose connections from here on keep to deadlines."""
    transport.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
    return transport


def _seconds(timeout: Any) -> float:
    return math.inf if timeout is None else float(timeout)


def _give(connected: socket.socket, seconds: float) -> None:
    """Give the next operation on the socket so many seconds; raises TimeoutError when none are left."""
    if seconds <= 0:
        raise TimeoutError("timed out")
    connected.settimeout(None if seconds == math.inf else seconds)
