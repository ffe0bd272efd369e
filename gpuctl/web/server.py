"""Serves the page until it is stopped: its addresses, its files, and the kubelet's probes."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette import responses
from starlette.applications import Starlette
from starlette.routing import Route

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.process.probes import Probes, endpoint
from gpuctl.web.guard import LOOPBACK, Guard
from gpuctl.web.pages import Pages
from gpuctl.web.reading import Readings
from gpuctl.web.view import View

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


_MOST_CONNECTIONS = 256
_END_SECONDS = 2
_LAST_PORT = 65535
_BACKLOG = 128
_PATIENCE_SECONDS = 3.0
"""How long a request waits for a new reading if there is an old one to show."""

_FIRST_SECONDS = 60.0
"""How long it waits for the first."""

_FILES = Path(__file__).parent / "static"
MakePage = Callable[["Request", View, str], Awaitable[str]]
"""Makes a page of what was read; the last is why this is not up to date, empty if it is."""

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


def bound(address: str) -> socket.socket:
    """A socket that listens at ``host:port``, port 0 for any free port; raises ConfigError if it cannot."""
    host, port = _host_and_port(address)
    try:
        # AI_PASSIVE without a host: all addresses of this machine.
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot serve at {address}: {error}", "give --addr a free host:port") from error
    try:
        # Connections of a server that ended just before may still be in TIME_WAIT, which would keep the port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot serve at {address}: {error}", "give --addr a free host:port") from error
    return listening


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches ``host:port``; raises ConfigError if it is malformed."""
    return _host_and_port(address)[0] in LOOPBACK


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        raise ConfigError(f"{address!r} is not an address", "write host:port, for example 127.0.0.1:8470")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_of(listening: socket.socket) -> str:
    """The URL of the page that is served at a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class WebServer:
    """The page over a connection to a cluster."""

    def __init__(self, client: KubeClient, title: str, names: Iterable[str]) -> None:
        """``title`` names the cluster for people, ``names`` are the names of the page for browsers."""
        self._server = uvicorn.Server(_config(PageApp(Readings(client), Pages(title)).app(names)))

    def run(self, listening: socket.socket) -> None:
        """Serve at a socket until ``stop``, or until SIGINT or SIGTERM in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # uvicorn handles them while it serves. When it has ended, it restores these handlers and
                # raises the signal again, which then must not end the process with an error.
                signal.signal(number, self._server.handle_exit)
        self._server.run([listening])

    def stop(self) -> None:
        """End ``run``; may be called from any thread."""
        self._server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    # Nobody needs WebSockets or startup events here. Headers of a proxy are not believed: anybody can send
    # them.
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_END_SECONDS,
    )


class PageApp:
    """Answers requests from the latest reading. It runs in the event loop, so nothing in it may block."""

    def __init__(self, readings: Readings, pages: Pages) -> None:
        self._readings = readings
        self._pages = pages

    def app(self, names: Iterable[str]) -> ASGIApp:
        """The application behind its guard; ``names`` are the names of the page for browsers."""
        pages = (
            ("/", self._overview),
            ("/node/{name}", self._node),
            ("/pod/{namespace}/{name}", self._pod),
        )
        routes = [Route(path, self._page(make), methods=["GET"]) for path, make in pages]
        return Guard(Starlette(routes=[*routes, Route("/static/{file}", _static, methods=["GET"])]), names)

    def _page(self, make: MakePage) -> Callable[[Request], Awaitable[responses.Response]]:
        async def answer(request: Request) -> responses.Response:
            cluster = self._readings.cluster
            reading = await cluster.latest(_PATIENCE_SECONDS if cluster.value else _FIRST_SECONDS)
            if reading is None:
                why = cluster.failure or "the API server has not answered yet"
                return responses.HTMLResponse(self._pages.unread(why), 503)
            return responses.HTMLResponse(await make(request, reading.view, cluster.failure))

        return answer

    async def _overview(self, request: Request, view: View, stale: str) -> str:
        answers = self._readings.answers(self._pages.listed_pods(view, request.query_params))
        return self._pages.overview(view, stale, request.query_params, answers)

    async def _node(self, request: Request, view: View, stale: str) -> str:
        return self._pages.node(view, stale, str(request.path_params["name"]))

    async def _pod(self, request: Request, view: View, stale: str) -> str:
        namespace, name = (str(request.path_params[part]) for part in ("namespace", "name"))
        answer = self._readings.answer((namespace, name))
        told = await answer.latest(_PATIENCE_SECONDS)
        failure = None if answer.is_first else answer.failure
        return self._pages.pod(view, stale, f"{namespace}/{name}", told, failure)


async def _static(request: Request) -> responses.Response:
    file = str(request.path_params["file"])
    if file not in _STATIC:  # no path that leads out of the folder is in it
        return responses.PlainTextResponse("this file does not exist\n", 404)
    return responses.FileResponse(_FILES / file, media_type=_STATIC[file])


@contextmanager
def answering(address: str) -> Iterator[None]:
    """Answer the kubelet's probes at ``host:port`` while the block runs; raises ConfigError."""
    served = endpoint(address, Probes(lambda: "", lambda: "", lambda: ""))
    thread = threading.Thread(target=served.run, name="probes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        served.stop()
        thread.join()
