"""Calls a gRPC method of the kubelet plugin at its Unix socket, without the gRPC library.

The library takes 13 MiB and seven threads, which wake up 30 times a second. A call of our own plugin needs
little of HTTP/2 (RFC 9113), HPACK (RFC 7541) and gRPC (grpc/doc/PROTOCOL-HTTP2.md): each call has a
connection of its own, sends one short message, and reads messages until the trailers have the status.
Messages are read and written here too, in Protocol Buffers' wire format, as that library takes another 3 MiB.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

CONNECT_SECONDS = 5.0
"""How long a server may take to accept the connection."""

# The number of a status is its place. https://grpc.io/docs/guides/status-codes
_CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
# Types and flags of frames (RFC 9113, 6).
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# SETTINGS_HEADER_TABLE_SIZE 0, so that each header arrives in full; SETTINGS_ENABLE_PUSH 0.
_OUR_SETTINGS = b"\0\1\0\0\0\0\0\2\0\0\0\0"


class CallFailed(Exception):
    """The call ended with another status than OK; ``code`` is its name."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class GrpcCall:
    """A call of ``method``, a full name like ``/service/Method``, with one serialised request.

    Iterating gives the answers, and raises CallFailed unless the status is OK. It fails with
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
            with self._socket, self._socket.makefile("rb") as stream:
                self._socket.settimeout(CONNECT_SECONDS)
                self._socket.connect(str(self._path))
                if not self._is_cancelled:
                    self._send_request()
                    yield from self._answers(stream)
        except OSError as error:
            late = self._end is not None and time.monotonic() >= self._end
            if not self._is_cancelled:
                raise CallFailed("DEADLINE_EXCEEDED" if late else "UNAVAILABLE") from error
        if self._is_cancelled:
            raise CallFailed("CANCELLED")

    def _send_request(self) -> None:
        # The static table's indices of ":method: POST" and ":scheme: http", then names from it or as text,
        # each with a value that is not indexed. All lengths are below 127, where they take one byte.
        headers = b"\x83\x86" + b"".join(
            name + _text(value)
            for name, value in (
                (b"\x04", self._method),
                (b"\x01", "localhost"),
                (b"\x0f\x10", "application/grpc"),
                (b"\x00" + _text("te"), "trailers"),
            )
        )
        # A message has its compression and length in front.
        message = b"\0" + len(self._request).to_bytes(4, "big") + self._request
        self._socket.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, _OUR_SETTINGS)
            + _frame(_HEADERS, _END_HEADERS, 1, headers)
            + _frame(_DATA, _END_STREAM, 1, message)
        )

    def _answers(self, stream: BinaryIO) -> Iterator[bytes]:
        data = b""
        for payload in self._payloads(stream):
            data += payload
            while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5], "big")):
                yield data[5:end]
                data = data[end:]

    def _payloads(self, stream: BinaryIO) -> Iterator[bytes]:
        """What the frames with data contain, until the status, and answers to all other frames."""
        headers = b""
        while True:
            self._socket.settimeout(None if self._end is None else max(self._end - time.monotonic(), 0.001))
            kind, flags, payload = _read_frame(stream)
            if kind == _DATA and payload:
                yield payload
                # What was read may be sent again, on the connection and on the stream.
                more = len(payload).to_bytes(4, "big")
                self._socket.sendall(_frame(_WINDOW_UPDATE, 0, 0, more) + _frame(_WINDOW_UPDATE, 0, 1, more))
            elif kind in (_HEADERS, _CONTINUATION):
                headers = payload if kind == _HEADERS else headers + payload
                if flags & _END_HEADERS and (status := _status(headers)) is not None:
                    if status:
                        raise CallFailed(_CODES[status] if status < len(_CODES) else "UNKNOWN")
                    return
            elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                self._socket.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
            elif kind == _RST_STREAM:
                raise ConnectionResetError("the server reset the stream")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _read_frame(stream: BinaryIO) -> tuple[int, int, bytes]:
    """The type, flags and payload of the next frame; raises OSError at the end of the connection."""
    head = stream.read(9)
    length = int.from_bytes(head[:3], "big")
    if len(head) < 9 or len(payload := stream.read(length)) < length:
        raise ConnectionResetError("the server closed the connection")
    return head[3], head[4], payload


def _text(value: str) -> bytes:
    return bytes((len(value),)) + value.encode()


def _status(headers: bytes) -> int | None:
    """The value of grpc-status in a block of headers, None if it has none."""
    # Since our header table has no room, the server's gRPC library writes names that are not in the static
    # table, and all values, as plain text: the name with its length, then the value with its length.
    name = _text("grpc-status")
    _, found, after = headers.partition(name)
    return int(after[1 : 1 + after[0]]) if found else None


def field(number: int, value: int | str) -> bytes:
    """A field of a message; a number or a text of the default value is left out."""
    if not value:
        return b""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value.encode())) + value.encode()


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field: an int, or the bytes of a text or of a message within.

    Raises ValueError for a message that is cut off or has fields of other types.
    """
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        value, place = _read_varint(message, place)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2 and place + value <= len(message):
            yield key >> 3, message[place : place + value]
            place += value
        else:
            raise ValueError(f"cannot read field {key >> 3} of a message")


def _varint(value: int) -> bytes:
    """An int in groups of 7 bits, the lowest first; the highest bit of a byte says that one more follows."""
    low, rest = value & 0x7F, value >> 7
    return bytes((low | 0x80,)) + _varint(rest) if rest else bytes((low,))


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    """The int at a place, and the place after it."""
    value = shift = 0
    while place < len(message):
        byte, place = message[place], place + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
    raise ValueError("a message is cut off")
