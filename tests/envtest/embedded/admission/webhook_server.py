"""A webhook as a test plays it: an HTTPS server that answers reviews as the test says, and keeps them."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

Object = dict[str, Any]
Answer = Callable[[Object], Object | bytes | int]
"""Makes the response of an AdmissionReview from its request, or a body, or an HTTP status."""

CA = trustme.CA(key_type=trustme.KeyType.ECDSA)
BUNDLE = base64.b64encode(CA.cert_pem.bytes()).decode()
SERVICE = "hook.team.svc"
_CERTIFICATE = CA.issue_cert("127.0.0.1", SERVICE, key_type=trustme.KeyType.ECDSA)
OWN_BUNDLE = base64.b64encode(_CERTIFICATE.cert_chain_pems[0].bytes()).decode()
"""The certificate of the server itself, without that of its authority."""


class PlayedWebhook:
    """Answers at each path as ``answers`` says; ``requests`` are the requests of reviews with their paths."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, Object]] = []
        self.hosts: list[str] = []

    @property
    def paths(self) -> list[str]:
        """The paths that were asked, in order."""
        return [path for path, _ in self.requests]

    def hook(self, path: str, answer: Answer, **fields: Any) -> Object:
        """A webhook of a configuration, for ConfigMaps, that is answered like this."""
        self.answers[path] = answer
        return {
            "name": f"{path.strip('/')}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": BUNDLE},
            "rules": [rule("configmaps")],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }


def rule(*resources: str, **fields: Any) -> Object:
    """A rule for all operations on these resources in all groups and versions."""
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"]}
    return {**everything, "resources": list(resources), **fields}


def allow(_request: Object) -> Object:
    """Allow the write."""
    return {"allowed": True}


def deny(**status: Any) -> Answer:
    """Deny the write with a Status."""
    return lambda _: {"allowed": False, "status": status}


def patch(*operations: Object) -> Answer:
    """Allow the write with a JSON patch."""
    data = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patch": data, "patchType": "JSONPatch"}


def add(path: str, value: Any) -> Object:
    """The operation of a JSON patch that adds a value."""
    return {"op": "add", "path": path, "value": value}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client that does not trust the certificate is expected."""


@contextmanager
def played_webhook() -> Iterator[PlayedWebhook]:
    """Serve on a free port of loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _CERTIFICATE.configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_POST(self) -> None:
            """Answer a review."""
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path, request = self.path.partition("?")[0], review["request"]
            if path.startswith("//"):
                # As Go's servers do.
                self.send_response(307)
                self.send_header("Location", self.path[1:])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            webhook.requests.append((path, request))
            webhook.hosts.append(self.headers["Host"])
            answer = webhook.answers[path](request)
            code = answer if isinstance(answer, int) else 200
            data = answer if isinstance(answer, bytes) else b"some text"
            if isinstance(answer, dict):
                data = json.dumps({**review, "response": {"uid": request["uid"], **answer}}).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = _Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    webhook = PlayedWebhook(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
