"""Serves admission reviews over HTTPS: POST /validate, and GET /healthz for probes.

Whoever reaches the port may send anything. A connection is one request, has so many seconds for all of it,
and a body of so many bytes; what is no review gets a status of 400 or above, and nothing of it is logged.
"""

from __future__ import annotations

import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY, has_dualstack_ipv6, socket
from socketserver import TCPServer
from typing import Any
from urllib.parse import urlsplit

from controller.webhook.certificate import ServingCertificate
from controller.webhook.review import review
from controller.webhook.subject import ReviewMalformed
from driver.errors import ConfigError
from driver.kube.decode import decode_json
from driver.process.log import get_logger, operation

REQUEST_SECONDS = 10.0
"""How long a connection may take from the TLS handshake to the last byte of its request."""
MOST_BODY_BYTES = 3 << 20
"""Stored objects have at most 1.5 MiB, and an update shows the old one as well."""
MOST_CONNECTIONS = 64
"""How many may be open, each with a thread; more are closed at once, which the failure policy covers."""
MOST_JUDGED = 4
"""How many bodies are decoded at once: what is decoded takes ten times the memory of what was sent."""

_log = get_logger(__name__)


class _Refused(Exception):
    """The request gets this status and sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Incoming(io.RawIOBase):
    """The bytes of a connection until a deadline, however slowly they drip in."""

    def __init__(self, connection: socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(remaining)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "gpu-dra-webhook"
    sys_version = ""
    default_request_version = "HTTP/1.0"  # what cannot be read is answered with a status as well
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        deadline = time.monotonic() + self.server.request_seconds
        self.rfile = io.BufferedReader(_Incoming(self.connection, deadline))

    def do_GET(self) -> None:
        """Say that the process is alive."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._send(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        elif path == "/validate":
            self._send_error(HTTPStatus.METHOD_NOT_ALLOWED, "POST an AdmissionReview")
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "there is /validate and /healthz")

    def do_POST(self) -> None:
        """Review an object."""
        with operation("review"):
            try:
                body = self._body()
                with self.server.judging:
                    answer = review(_decoded(body))
            except _Refused as refused:
                self._send_error(refused.status, str(refused))
                return
            except ReviewMalformed as malformed:
                self._send_error(HTTPStatus.BAD_REQUEST, str(malformed))
                return
            found = answer.findings
            log = _log.info if found.errors or found.warnings else _log.debug
            log(
                "reviewed",
                kind=answer.kind,
                allowed=answer.allowed,
                errors=len(found.errors),
                warnings=len(found.warnings),
            )
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer.document).encode())

    def _body(self) -> bytes:
        """What was posted; raises _Refused."""
        if self.path.partition("?")[0] != "/validate":  # the API server adds ?timeout=
            raise _Refused(HTTPStatus.NOT_FOUND, "there is /validate and /healthz")
        length = _checked_length(self.headers)
        body = self.rfile.read(length)
        if len(body) < length:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body is shorter than Content-Length")
        return body

    def _send_error(self, status: HTTPStatus, sentence: str) -> None:
        _log.info("request refused", status=int(status), reason=sentence)
        self._send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.connection.settimeout(self.server.request_seconds)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Leave it out: the line would have parts of the request in it."""


def _decoded(body: bytes) -> Any:
    try:
        return decode_json(body)
    except ValueError as error:
        raise _Refused(HTTPStatus.BAD_REQUEST, "the body is no JSON document") from error


def _checked_length(headers: Message) -> int:
    """How many bytes the body has; raises _Refused for one that is not read."""
    if headers.get_content_type() != "application/json":
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type is not application/json")
    length = headers.get("Content-Length", "")
    if "Transfer-Encoding" in headers or not length:
        raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length")
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise _Refused(HTTPStatus.BAD_REQUEST, "the Content-Length is no number")
    if int(length) > MOST_BODY_BYTES:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {MOST_BODY_BYTES} bytes")
    return int(length)


class _Server(HTTPServer):
    """Hands each connection to a thread of a pool, in which its handshake, too, takes place."""

    request_queue_size = 128
    certificate: ServingCertificate
    pool: ThreadPoolExecutor
    request_seconds: float

    def __init__(self, address: tuple[str, int]) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.judging = threading.BoundedSemaphore(MOST_JUDGED)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own also asks the name service for the host's full name, which can hang.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            _log.warning("connection closed, too many are open", most=MOST_CONNECTIONS)
            self.shutdown_request(request)
            return
        try:
            self.pool.submit(self._serve, request, client_address)
        except RuntimeError:  # the pool has ended, and the server is about to
            self._places.release()
            self.shutdown_request(request)

    def _serve(self, request: socket, client_address: Any) -> None:
        try:
            request.settimeout(self.request_seconds)
            context = self.certificate.context()
            request = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            request.do_handshake()
            self.finish_request(request, client_address)
        except OSError as error:  # TLS errors and timeouts are among them
            _log.debug("connection failed", error=type(error).__name__)
        except Exception:  # noqa: BLE001 - the next connection must be served whatever this one did
            _log.exception("request failed")
        finally:
            self._places.release()
            self.shutdown_request(request)


class _Server6(_Server):
    """Without a host it is reached by IPv4 as well, as pods may have addresses of either kind or both."""

    address_family = AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, int(self.server_address[0] != ""))
        super().server_bind()


class WebhookServer:
    """Bound when made, serving while ``run`` blocks, each connection in a thread of ``pool``.

    The pool should have ``MOST_CONNECTIONS`` threads: a connection that says nothing takes one for a while.
    """

    def __init__(
        self,
        address: str,
        certificate: ServingCertificate,
        pool: ThreadPoolExecutor,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Bind ``host:port`` (``:port`` for all interfaces, port 0 for any free one).

        Raises ConfigError when the address is none or cannot be bound.
        """
        host, port = _host_and_port(address)
        version_6 = ":" in host or (not host and has_dualstack_ipv6())
        try:
            self._server = (_Server6 if version_6 else _Server)((host, port))
        except OSError as error:
            raise ConfigError(
                f"cannot serve reviews at {address}: {error}", "give --addr a free host:port"
            ) from error
        self._server.certificate, self._server.pool = certificate, pool
        self._server.request_seconds = request_seconds

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._server.server_port

    def run(self) -> None:
        """Serve until ``stop`` is called from another thread, then let the address go."""
        with self._server:
            self._server.serve_forever()

    def stop(self) -> None:
        """End ``run``, which must be running or about to run."""
        self._server.shutdown()


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        if parts.port is not None and parts.netloc == address:
            return parts.hostname or "", parts.port
    except ValueError:
        pass  # the same sentence as for what splits but is no address
    raise ConfigError(f"{address!r} is no address for the webhook", "write host:port, for example :8443")
