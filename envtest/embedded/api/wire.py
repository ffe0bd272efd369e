"""Reads HTTP/1.1 requests from a connection and writes answers, with no more than the API's clients need."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from io import BufferedIOBase
from typing import Any

# The limit of kube-apiserver (MaxRequestBodyBytes).
MOST_BODY_BYTES = 3 * 1024 * 1024
_MOST_SKIPPED_BYTES = 64 * 1024 * 1024
_MOST_LINE_BYTES = 64 * 1024
_MOST_HEADERS = 100
_MOST_LENGTH_DIGITS = 20
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class BadRequestLine(Exception):
    """The bytes are not an HTTP request; the connection ends."""


class BodyTooLarge(Exception):
    """The body is above the limit; the connection ends after the answer."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: ``headers`` by their names in lower case, ``target`` the path with its query."""

    method: str
    target: str
    headers: dict[str, str]
    closes: bool

    def header(self, name: str) -> str:
        """A header's value, empty where it is absent."""
        return self.headers.get(name, "")


def read_head(source: BufferedIOBase) -> HttpRequest | None:
    """The next request without its body; None at the end of the connection. Raises BadRequestLine."""
    line = source.readline(_MOST_LINE_BYTES)
    # RFC 9112: an empty line before a request is to be ignored.
    if line in (b"\r\n", b"\n"):
        line = source.readline(_MOST_LINE_BYTES)
    if not line:
        return None
    parts = line.decode("latin-1").split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestLine
    # Go reads the path before anything else.
    if _BROKEN_ESCAPE.search(parts[1].partition("?")[0]):
        raise BadRequestLine
    headers: dict[str, str] = {}
    while True:
        line = source.readline(_MOST_LINE_BYTES)
        if line in (b"\r\n", b"\n"):
            break
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or len(headers) >= _MOST_HEADERS:
            raise BadRequestLine
        headers.setdefault(name.lower(), value.strip())
    connection = headers.get("connection", "").lower()
    # HTTP/1.1 keeps a connection unless it is told otherwise, HTTP/1.0 closes it.
    closes = connection == "close" or (parts[2] == "HTTP/1.0" and connection != "keep-alive")
    return HttpRequest(parts[0], parts[1], headers, closes)


def read_body(request: HttpRequest, source: BufferedIOBase) -> bytes:
    """The request's body; raises BadRequestLine and BodyTooLarge."""
    chunked = request.header("transfer-encoding").lower() == "chunked"
    length = request.header("content-length")
    if not chunked and length in ("", "0"):
        return b""
    if not chunked and not (length.isdecimal() and len(length) <= _MOST_LENGTH_DIGITS):
        raise BadRequestLine
    if not chunked and int(length) > MOST_BODY_BYTES:
        if int(length) <= _MOST_SKIPPED_BYTES:
            _skip(source, int(length))
        raise BodyTooLarge
    return _read_chunks(source) if chunked else source.read(int(length))


def _skip(source: BufferedIOBase, count: int) -> None:
    """Read and drop so many bytes: a client that is still writing does not read the answer yet."""
    while count > 0 and (data := source.read(min(count, 1 << 20))):
        count -= len(data)


def _read_chunks(source: BufferedIOBase) -> bytes:
    body = bytearray()
    while True:
        try:
            # A semicolon begins chunk extensions, which mean nothing here.
            size = int(source.readline(_MOST_LINE_BYTES).partition(b";")[0], 16)
        except ValueError as error:
            raise BadRequestLine from error
        if len(body) + size > MOST_BODY_BYTES:
            raise BodyTooLarge
        body += source.read(size)
        # The end of the line behind the chunk, or after the last one the empty line of the trailer.
        source.readline(_MOST_LINE_BYTES)
        if size == 0:
            return bytes(body)


def answer_bytes(code: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> bytes:
    """A whole answer."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    kind = f"Content-Type: {content_type}\r\n"
    head = f"HTTP/1.1 {code} {_PHRASES.get(code, '')}\r\n{kind}Content-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode("latin-1") + body


def stream_head(content_type: str = "application/json") -> bytes:
    """The head of an answer whose body comes in chunks."""
    # Of unknown length, so it is chunked: the client knows a cut answer from one that ended.
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk; an empty one ends the body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def json_bytes(value: Any) -> bytes:
    """A value in compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
