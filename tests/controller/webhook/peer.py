"""A certificate for 127.0.0.1, a webhook that serves with it, and a client that sends it anything."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.webhook.server import endpoint
from tests.clusters import Service, ServingCertificate
from tests.openssl import make_certificate

SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A self-signed certificate and its key, in files that may be replaced."""

    cert_file: Path
    key_file: Path


def make_pair(folder: Path, *more: str) -> Pair:
    """Make a certificate for 127.0.0.1 in this folder; the one that is there is replaced."""
    pair = Pair(folder / "tls.crt", folder / "tls.key")
    folder.mkdir(exist_ok=True)
    names = ("-subj", "/CN=webhook", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(pair.key_file), "-out", str(pair.cert_file))
    make_certificate(*names, *files, *(more or ("-nodes", "-days", "2")))
    return pair


@contextmanager
def served(
    pair: Pair, request_seconds: float = SECONDS, address: str = "127.0.0.1:0", *classes: str
) -> Iterator[Peer]:
    """A client of a webhook that serves with this certificate while the block runs."""
    service = Service()
    certificate = ServingCertificate(pair.cert_file, pair.key_file)
    server = endpoint(address, certificate, request_seconds, frozenset(classes))
    service.spawn("webhook", server.run, server.stop)
    try:
        yield Peer(server.port, pair.cert_file)
    finally:
        service.stop()


@dataclass(frozen=True, slots=True)
class Peer:
    """Speaks HTTPS with the webhook at a port, and trusts the certificate in a file only."""

    port: int
    cert_file: Path

    def connected(self) -> ssl.SSLSocket:
        """A connection whose handshake is done."""
        plain = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        try:
            return self.secured(plain)
        except OSError:
            plain.close()
            raise

    def secured(self, plain: socket.socket) -> ssl.SSLSocket:
        """The same for a connection that is there."""
        context = ssl.create_default_context(cafile=str(self.cert_file))
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def certificate(self) -> bytes | None:
        """The certificate that is served."""
        with self.connected() as connection:
            return connection.getpeercert(binary_form=True)

    def send(self, sent: bytes) -> bytes:
        """All that comes back for these bytes until the webhook closes."""
        with self.connected() as connection:
            connection.sendall(sent)
            return answered(connection)

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of an answer; ``Content_Type`` stands for Content-Type."""
        context = ssl.create_default_context(cafile=str(self.cert_file))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def review(self, body: Any) -> dict[str, Any]:
        """The response of the AdmissionReview that is answered, asked as an API server asks."""
        sent = json.dumps(body).encode()
        status, kind, answer = self.request(
            "POST", "/validate?timeout=5s", sent, Content_Type="application/json"
        )
        assert (status, kind) == (200, "application/json"), answer
        return dict(json.loads(answer)["response"])


def answered(connection: ssl.SSLSocket) -> bytes:
    """All that comes until the other side closes, however it does."""
    received = bytearray()
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except (ssl.SSLEOFError, ConnectionResetError):
        pass  # it closed without reading everything that was sent
    return bytes(received)
