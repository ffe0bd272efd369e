"""Answers the probes of a kubelet over plain HTTP: ``/startupz``, ``/livez`` and ``/readyz``.

200 means yes and 503 no; the body is one line with the reason. A kubelet restarts a container that is not
alive, so liveness must not depend on anything that a restart does not repair: no GPU, no NVML, no API server,
no disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from driver.process.http_endpoint import ANSWER_SECONDS, HttpEndpoint, Server
from driver.process.service import Service

Question = Callable[[], str]
"""Returns the reason for a no in one line; empty means yes."""

_SERVED = ("/startupz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Probes:
    """The questions of a process: whether it has started, whether it is alive, whether it does its job."""

    started: Question
    alive: Question
    ready: Question


class _Handler(BaseHTTPRequestHandler):
    server: Server
    # http.server sets this as the socket's timeout, which ends a client that does not read its answer.
    timeout = ANSWER_SECONDS
    # The header Server: by default it would name http.server and Python with their versions.
    server_version = "gpu-dra"
    sys_version = ""
    questions: dict[str, Question]

    def do_GET(self) -> None:
        # A GET has no body, so the request is complete here and cannot be too late any more.
        self.server.has_read(self.connection)
        question = self.questions.get(self.path.partition("?")[0])
        if question is None:
            self._answer(HTTPStatus.NOT_FOUND, f"there are {', '.join(_SERVED)}")
        elif why_not := question():
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, " ".join(why_not.split()))
        else:
            self._answer(HTTPStatus.OK, "ok")

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""

    def _answer(self, status: HTTPStatus, line: str) -> None:
        body = f"{line}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def endpoint(address: str, probes: Probes) -> HttpEndpoint:
    """The endpoint of these probes at ``host:port``, bound; raises ConfigError."""
    questions = dict(zip(_SERVED, (probes.started, probes.alive, probes.ready), strict=True))
    # http.server makes a handler for each request from the class alone, so the questions are in a class.
    handler = type("_Handler", (_Handler,), {"questions": questions})
    return HttpEndpoint(address, lambda place: Server(place, handler), what="probes", flag="--health-addr")


def serve(service: Service, address: str, probes: Probes) -> None:
    """Answer probes as long as the service lives; with an empty address, none. Raises ConfigError."""
    if address:
        served = endpoint(address, probes)
        service.spawn("probes", served.run, served.stop)
