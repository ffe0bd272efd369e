"""Serves admission reviews over HTTPS: POST /validate. Probes have a server of their own.

Everybody who reaches the port may send anything. A connection is for one request, with limits for its time
and its body. Anything that is not a review gets a status of 400 or above, and nothing of it is logged.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from controller.webhook.certificate import ServingCertificate
from controller.webhook.review import review
from controller.webhook.subject import ReviewMalformed
from driver.kube.decode import decode_json
from driver.process.http_endpoint import ANSWER_SECONDS, HttpEndpoint, Server
from driver.process.log import get_logger, operation

REQUEST_SECONDS = 10.0
"""How long a connection may take from the TLS handshake to the last byte of its request."""
# etcd stores at most 1.5 MiB by default. An update whose two objects are larger together is not reviewed.
MOST_BODY_BYTES = 2 << 20
MOST_CONNECTIONS = 64
"""How many may be open at once, each with a thread."""
# Together they bound the memory: a decoded body takes up to 36 times that of its bytes, and each of twice as
# many threads as connections may hold a body.
_MOST_JUDGED = 1
"""How many bodies are decoded at once."""

_log = get_logger(__name__)


class _Refused(Exception):
    """The request gets this status and sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "gpu-dra-webhook"
    sys_version = ""
    # The default is HTTP/0.9, whose answers have no status. A request that cannot be parsed gets one like
    # this.
    default_request_version = "HTTP/1.0"
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def do_GET(self) -> None:
        """Refuse, with a hint."""
        is_known = self.path.partition("?")[0] == "/validate"
        status = HTTPStatus.METHOD_NOT_ALLOWED if is_known else HTTPStatus.NOT_FOUND
        self._send_error(status, "POST an AdmissionReview to /validate")

    def do_POST(self) -> None:
        """Review an object."""
        try:
            done = self._reviewed(self._body())
        except _Refused as refused:
            done = refused
        # Outside of the operation, like the reading: a client that goes away is no fault of it.
        if isinstance(done, _Refused):
            self._send_error(done.status, str(done))
        else:
            self._send(HTTPStatus.OK, "application/json", json.dumps(done).encode())

    def _reviewed(self, body: bytes) -> dict[str, Any] | _Refused:
        """The answer to an AdmissionReview."""
        with operation("review"):
            try:
                with self.server.judging:
                    answer = review(_decoded(body), self.server.classes)
            except ReviewMalformed as malformed:
                return _Refused(HTTPStatus.BAD_REQUEST, str(malformed))
            found = answer.findings
            log = _log.info if found.errors or found.warnings else _log.debug
            log(
                "reviewed",
                kind=answer.kind,
                allowed=answer.allowed,
                errors=len(found.errors),
                warnings=len(found.warnings),
            )
            return answer.document

    def _body(self) -> bytes:
        """The body of the request; raises _Refused."""
        # The API server adds ?timeout= to the path.
        if self.path.partition("?")[0] != "/validate":
            raise _Refused(HTTPStatus.NOT_FOUND, "POST an AdmissionReview to /validate")
        length = _checked_length(self.headers)
        body = self.rfile.read(length)
        self.server.has_read(self.connection)
        if len(body) < length:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body is shorter than Content-Length")
        return body

    def _send_error(self, status: HTTPStatus, sentence: str) -> None:
        _log.info("request refused", status=int(status), reason=sentence)
        self._send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.connection.settimeout(ANSWER_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log nothing: the line would contain parts of the request."""


def _decoded(body: bytes) -> Any:
    try:
        return decode_json(body)
    except ValueError as error:
        raise ReviewMalformed("the body is not a JSON document") from error


def _checked_length(headers: Message) -> int:
    """The length of the body in bytes; raises _Refused for one that is not accepted."""
    if headers.get_content_type() != "application/json":
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type is not application/json")
    length = headers.get("Content-Length", "")
    if "Transfer-Encoding" in headers or not length:
        raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length")
    # int() would accept more: signs, spaces, underscores, other digits.
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise _Refused(HTTPStatus.BAD_REQUEST, "the Content-Length is not a number")
    if int(length) > MOST_BODY_BYTES:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MOST_BODY_BYTES} bytes")
    return int(length)


class _Server(Server):
    """Makes the TLS handshake of a connection in the connection's own thread."""

    def __init__(
        self,
        address: tuple[str, int],
        certificate: ServingCertificate,
        seconds: float,
        classes: frozenset[str],
    ) -> None:
        self.classes = classes
        self.judging = threading.BoundedSemaphore(_MOST_JUDGED)
        self._certificate = certificate
        super().__init__(address, _Handler, MOST_CONNECTIONS, seconds)

    def secured(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection with the certificate as it is now."""
        connection.settimeout(self._request_seconds)
        return self._certificate.context().wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )

    def shake_hands(self, connection: socket.socket) -> None:
        """Make the handshake."""
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()


def endpoint(
    address: str,
    certificate: ServingCertificate,
    seconds: float = REQUEST_SECONDS,
    classes: frozenset[str] = frozenset(),
) -> HttpEndpoint:
    """The endpoint for reviews, bound to ``host:port``; raises ConfigError.

    For ``classes`` see ``review``.
    """
    return HttpEndpoint(
        address, lambda place: _Server(place, certificate, seconds, classes), what="reviews", flag="--addr"
    )
