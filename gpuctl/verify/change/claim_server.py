"""Serves the plugin what it asks of an API server and of a kubelet: the slices of this node, and claims.

Nothing is stored: what the plugin writes, events and the status of claims, is answered and forgotten.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import yaml

from driver.kube.paths import RESOURCE_SLICES, claim_path
from kubeletplugin.kubelet.podresources import LIST_METHOD
from proto import podresources_v1_pb2 as pb

Object = dict[str, Any]

_VERSION = "1"
_KIND_OF_LIST = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList"}


class ClaimServer:
    """The server while it runs. ``kubeconfig`` is the text of a file by which the plugin reaches it."""

    def __init__(self, slices: Sequence[Object]) -> None:
        self.slices = list(slices)
        self.token = secrets.token_urlsafe()
        self.ended = threading.Event()
        self._claims: dict[str, Object] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.claims = self  # type: ignore[attr-defined] # how http.server hands things to its handlers
        self._thread = threading.Thread(target=self._http.serve_forever, name="claims", daemon=True)
        self._thread.start()

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig."""
        cluster = {"server": f"http://127.0.0.1:{self._http.server_port}"}
        return yaml.safe_dump(
            {
                "current-context": "verify",
                "clusters": [{"name": "verify", "cluster": cluster}],
                "users": [{"name": "verify", "user": {"token": self.token}}],
                "contexts": [{"name": "verify", "context": {"cluster": "verify", "user": "verify"}}],
            }
        )

    def put(self, claim: Object) -> None:
        """Serve a claim from now on."""
        self._claims[claim_path(claim["metadata"]["namespace"], claim["metadata"]["name"])] = claim

    def remove(self, claim: Object) -> None:
        """Serve a claim no longer."""
        self._claims.pop(claim_path(claim["metadata"]["namespace"], claim["metadata"]["name"]), None)

    def found(self, path: str) -> Object | None:
        """What is served at a path; None if nothing is."""
        if path == RESOURCE_SLICES:
            return {**_KIND_OF_LIST, "metadata": {"resourceVersion": _VERSION}, "items": self.slices}
        return self._claims.get(path.removesuffix("/status"))

    def end(self) -> None:
        """Answer nothing any more."""
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def claim_server(slices: Sequence[Object], folder: Path) -> Iterator[ClaimServer]:
    """A server until the end of the block, and a kubelet below a folder that lists no pods."""
    server, kubelet = ClaimServer(slices), _kubelet(folder)
    try:
        yield server
    finally:
        kubelet.stop(None)
        server.end()


def _kubelet(folder: Path) -> grpc.Server:
    def listed(_request: pb.ListPodResourcesRequest, _context: grpc.ServicerContext) -> Any:
        return pb.ListPodResourcesResponse()

    service, _, method = LIST_METHOD.strip("/").partition("/")
    handler = grpc.unary_unary_rpc_method_handler(
        listed,
        pb.ListPodResourcesRequest.FromString,
        pb.ListPodResourcesResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    # The plugin looks for it beside its --plugins-dir.
    socket = folder / "pod-resources" / "kubelet.sock"
    socket.parent.mkdir(mode=0o700)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _claims(self) -> ClaimServer:
        found: ClaimServer = self.server.claims  # type: ignore[attr-defined] # see ClaimServer
        return found

    def do_GET(self) -> None:
        """Answer with an object or a list, or keep a watch open, in which nothing ever changes."""
        asked = urlsplit(self.path)
        if "watch" in parse_qs(asked.query) and self._may_ask():
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self._claims.ended.wait()
        else:
            self._answer(self._claims.found(asked.path))

    def do_POST(self) -> None:
        """Take an event."""
        self._answer(json.loads(self._body()))

    def do_PATCH(self) -> None:
        """Take the status of a claim."""
        self._body()
        self._answer(self._claims.found(urlsplit(self.path).path))

    def log_message(self, *_: Any) -> None:
        """Nobody reads a log of this server."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _may_ask(self) -> bool:
        return secrets.compare_digest(
            self.headers.get("Authorization", "").encode(), f"Bearer {self._claims.token}".encode()
        )

    def _answer(self, content: Object | None) -> None:
        code = 200
        if not self._may_ask():
            code, content = 401, None
        elif content is None:
            code = 404
        failed = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        text = json.dumps(failed if content is None else content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
