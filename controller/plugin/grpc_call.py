"""Calls a gRPC method of the kubelet plugin at its Unix socket by h2, which is HTTP/2 alone.

The gRPC library takes 10 MiB more, and seven threads that wake up 30 times a second. Each call has a
connection of its own, sends one message, and reads messages until the trailers have the status
(grpc/doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

CONNECT_SECONDS = 5.0
"""How long a server may take to accept the connection."""

_STREAM = 1
_RECEIVE_BYTES = 64 << 10
# The number of a status is its place. https://grpc.io/docs/guides/status-codes
_CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


class CallFailed(Exception):
    """The call ended with another status than OK; ``code`` is its name."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class GrpcCall:
    """A call of ``method``, a full name like ``/service/Method``, with one serialised request.

    Iterating gives the answers, serialised too, and raises CallFailed unless the status is OK. It fails with
    ``DEADLINE_EXCEEDED`` after ``timeout_seconds``, with ``CANCELLED`` after ``cancel``, and with
    ``UNAVAILABLE`` if the connection breaks or cannot be made.
    """

    def __init__(self, path: Path, method: str, request: bytes, timeout_seconds: float | None = None) -> None:
        self._path = path
        self._method = method
        self._request = request
        self._end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._socket = socket.socket(socket.AF_UNIX)
        self._is_cancelled = False

    def cancel(self) -> None:
        """End the call, from any thread."""
        self._is_cancelled = True
        # shutdown(2) wakes a thread that waits in recv; it fails while there is no connection yet.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __iter__(self) -> Iterator[bytes]:
        """The answers; to be called once."""
        try:
            with self._socket:
                self._socket.settimeout(CONNECT_SECONDS)
                self._socket.connect(str(self._path))
                if not self._is_cancelled:
                    yield from self._answers()
        except (OSError, ProtocolError) as error:
            late = self._end is not None and time.monotonic() >= self._end
            if not self._is_cancelled:
                raise CallFailed("DEADLINE_EXCEEDED" if late else "UNAVAILABLE") from error
        if self._is_cancelled:
            raise CallFailed("CANCELLED")

    def _answers(self) -> Iterator[bytes]:
        connection = H2Connection()
        connection.initiate_connection()
        connection.send_headers(
            _STREAM,
            [
                *((":method", "POST"), (":scheme", "http"), (":path", self._method)),
                *((":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")),
            ],
        )
        # A message has its compression and length in front. Requests are far smaller than a frame.
        head = b"\0" + len(self._request).to_bytes(4, "big")
        connection.send_data(_STREAM, head + self._request, end_stream=True)
        data = b""
        while True:
            self._socket.sendall(connection.data_to_send())
            self._socket.settimeout(None if self._end is None else max(self._end - time.monotonic(), 0.001))
            received = self._socket.recv(_RECEIVE_BYTES)
            if not received:
                raise ConnectionResetError("the server closed the connection")
            for event in connection.receive_data(received):
                if isinstance(event, DataReceived):
                    connection.acknowledge_received_data(event.flow_controlled_length, _STREAM)
                    data += event.data
                    while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
                        yield data[5:end]
                        data = data[end:]
                elif _is_end(event):
                    return


def _is_end(event: Event) -> bool:
    """Whether the call has ended well with an event; raises CallFailed or OSError if it ended otherwise."""
    if isinstance(event, StreamReset | ConnectionTerminated):
        raise ConnectionResetError("the server ended the stream")
    # A call without answers has the status in its only headers.
    if not isinstance(event, ResponseReceived | TrailersReceived):
        return False
    status = dict(event.headers or ()).get(b"grpc-status")
    if status is None:
        return False
    if number := int(status):
        raise CallFailed(_CODES[number] if number < len(_CODES) else "UNKNOWN")
    return True
