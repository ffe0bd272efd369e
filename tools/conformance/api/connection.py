"""Sends HTTP requests exactly as a case has them, and reads the answers: no library corrects either."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any, Self

from envtest.embedded.api.requests import User

Step = dict[str, Any]
"""One request: ``method`` and ``target``; some have ``body``, ``headers``, ``user``, or ``take`` events."""

_PATIENCE_SECONDS = 40.0
_PATIENCE_FOR_EVENTS_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, the administrator's token, and whether it speaks HTTPS.

    ``add_user`` makes a token of a user; None where an administrator impersonates users.
    """

    host: str
    port: int
    token: str
    has_tls: bool
    add_user: Callable[[User], str] | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: ``headers`` by names in lower case, each with all its values."""

    code: int
    headers: dict[str, list[str]]
    body: bytes = b""
    lines: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> str:
        """The first value of a header, empty where it is absent."""
        return self.headers.get(name, [""])[0]


class Connection:
    """One connection, opened again when the server has closed it. Not thread-safe."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._source: BufferedReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._source is not None:
            self._source.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._source = None

    def exchange(self, step: Step, body: bytes) -> Response:
        """The answer to one request; of a watch so many lines as the step takes."""
        source = self._opened()
        assert self._socket is not None
        self._socket.sendall(self._head(step, body) + body)
        code, headers = _read_head(source)
        closes = headers.get("connection", [""])[0].lower() == "close"
        if step["method"] == "HEAD" or code in (204, 304):
            response = Response(code, headers)
        elif headers.get("transfer-encoding", [""])[0] == "chunked":
            self._socket.settimeout(_PATIENCE_FOR_EVENTS_SECONDS)
            lines, ended = _read_lines(source, step.get("take"))
            if ended:
                self._socket.settimeout(_PATIENCE_SECONDS)
            closes = closes or not ended
            response = Response(code, headers, b"".join(lines), lines)
        elif "content-length" in headers:
            response = Response(code, headers, source.read(int(headers["content-length"][0])))
        else:
            response, closes = Response(code, headers, source.read()), True
        if closes:
            self.close()
        return response

    def _opened(self) -> BufferedReader:
        if self._source is None:
            plain = socket.create_connection((self._server.host, self._server.port), _PATIENCE_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._server.has_tls:
                # The server of a comparison signs its own certificate, on loopback.
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                self._socket = context.wrap_socket(plain)
            else:
                self._socket = plain
            self._source = self._socket.makefile("rb")
        return self._source

    def _head(self, step: Step, body: bytes) -> bytes:
        headers = {"Host": "api", "User-Agent": "conformance/1", **step.get("headers", {})}
        token, user = self._server.token, step.get("user")
        if user and self._server.add_user is not None:
            token = self._server.add_user(User(user, ("system:authenticated",)))
        elif user:
            headers["Impersonate-User"] = user
        headers["Authorization"] = f"Bearer {token}"
        if body or step["method"] in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body))
        lines = [f"{step['method']} {step['target']} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _read_head(source: BufferedReader) -> tuple[int, dict[str, list[str]]]:
    line = source.readline()
    if not line:
        raise ConnectionResetError("the server closed the connection without an answer")
    code = int(line.split()[1])
    headers: dict[str, list[str]] = {}
    while (line := source.readline().rstrip(b"\r\n")) != b"":
        name, _, value = line.decode("latin-1").partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    # Such as 100 Continue, behind which the answer follows.
    return (code, headers) if code >= 200 else _read_head(source)


def _read_lines(source: BufferedReader, most: int | None) -> tuple[list[bytes], bool]:
    """The lines of a chunked answer, at most ``most``; and whether the answer ended."""
    lines: list[bytes] = []
    rest = b""
    while most is None or len(lines) < most:
        try:
            size = int(source.readline().partition(b";")[0], 16)
        except TimeoutError:
            # A watch on which no more comes: the next answer differs if it ought to.
            return lines, False
        rest += source.read(size)
        source.readline()
        if size == 0:
            return lines + ([rest] if rest else []), True
        *whole, rest = rest.split(b"\n")
        lines += [line + b"\n" for line in whole]
    return lines[:most], False
