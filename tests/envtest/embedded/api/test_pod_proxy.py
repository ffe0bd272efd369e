"""Requests to a pod's own port go through the API server."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from envtest.embedded.server import EmbeddedApiServer
from tests.envtest.embedded.api.api_calls import PODS, ask, pod, shown


class Echo(BaseHTTPRequestHandler):
    """A program in a pod: it answers with what it was asked for, and not everywhere."""

    def do_GET(self) -> None:
        body = f"asked for {self.path}".encode()
        self.send_response(200 if self.path.startswith("/metrics") else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def port() -> Iterator[int]:
    """Where the program listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield int(server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture
def cluster(port: int) -> Iterator[EmbeddedApiServer]:
    """A server with the pod ``p``, whose second port is the program's."""
    with EmbeddedApiServer() as server:
        made = pod("p", nodeName="n")
        made["spec"]["containers"][0]["ports"] = [{"containerPort": one} for one in (9, port)]
        server.create(PODS, made)
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1"}}
        ask(server, "PATCH", f"{PODS}/p/status", status, content_type="application/merge-patch+json")
        yield server


def text(server: EmbeddedApiServer, path: str) -> tuple[int, str, str | None]:
    """Status, body and content type of an answer that is no JSON."""
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        connection.request("GET", path, headers=shown(server))
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode(), answer.getheader("Content-Type")
    finally:
        connection.close()


def test_path_and_query_reach_the_port_and_the_answer_comes_back(
    cluster: EmbeddedApiServer, port: int
) -> None:
    found = text(cluster, f"{PODS}/p:{port}/proxy/metrics/deep?name=a&name2=b%20c")

    assert found == (200, "asked for /metrics/deep?name=a&name2=b+c", "text/plain; version=0.0.4")
    assert text(cluster, f"{PODS}/p:{port}/proxy/none")[:2] == (404, "asked for /none")
