"""Serves the page until it is stopped: its addresses, the stream of changes, and the kubelet's probes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette import responses
from starlette.applications import Starlette
from starlette.routing import Route

from driver.errors import ConfigError
from driver.kube.client import KubeClient
from driver.process.probes import Probes, endpoint
from gpuctl.web.seen.view import View
from gpuctl.web.serve.guard import LOOPBACK, Guard
from gpuctl.web.serve.query import Query
from gpuctl.web.serve.rendering import FOLDER, Parts, Renderer
from gpuctl.web.serve.streams import Streams
from gpuctl.web.watch.answers import Answers
from gpuctl.web.watch.engine import Engine

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp


_MOST_CONNECTIONS = 256
_END_SECONDS = 2
_LAST_PORT = 65535
_BACKLOG = 128

_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MOST_MARKS = 32

Page = tuple[str, Parts, dict[str, Any]]
"""A template, its parts, and its other values."""

MakePage = Callable[["Request"], Page]


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


class _Server(uvicorn.Server):
    """Ends the streams of browsers when it is stopped; else it would wait for them until its time is over."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, at SIGINT and SIGTERM."""
        self._streams.close()
        super().handle_exit(sig, frame)


class WebServer:
    """The page over a connection to a cluster."""

    def __init__(self, client: KubeClient, title: str, names: Iterable[str]) -> None:
        """``title`` names the cluster for people, ``names`` are the names of the page for browsers."""
        self.engine = Engine(client)
        self.streams = Streams()
        self._answers = Answers(client, self._changed)
        renderer = Renderer(title, self._answers.known, self._answers.ask)
        app = PageApp(lambda: self.engine.view, lambda: self._answers.version, renderer, self.streams)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = _Server(_config(app.app(names)), self.streams)
        self.engine.listen(self._update)

    def _update(self, view: View) -> None:
        self._answers.update(view)
        self._changed()

    def _changed(self) -> None:
        """Send the new version to the streams, from any thread."""
        version = f"{self.engine.view.version}.{self._answers.version}"
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, since the server ends
                self._loop.call_soon_threadsafe(self.streams.tell, version)

    def run(self, listening: socket.socket) -> None:
        """Serve at a socket until ``stop``, or until SIGINT or SIGTERM in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # uvicorn handles them while it serves. When it has ended, it restores these handlers and
                # raises the signal again, which then must not end the process with an error.
                signal.signal(number, self._server.handle_exit)
        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers.start()
        self.engine.start()
        try:
            await self._server.serve([listening])
        finally:
            self._loop = None
            self.engine.stop()
            self._answers.stop()

    def stop(self) -> None:
        """End ``run``; may be called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._server.handle_exit, signal.SIGTERM, None)


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
    """Answers requests from the latest view. It runs in the event loop, so nothing in it may block."""

    def __init__(
        self,
        view: Callable[[], View],
        answers: Callable[[], int],
        renderer: Renderer,
        streams: Streams,
    ) -> None:
        """``answers`` is the version of explain's answers."""
        self._view = view
        self._answers = answers
        self._renderer = renderer
        self._streams = streams

    def app(self, names: Iterable[str]) -> ASGIApp:
        """The application behind its guard; ``names`` are the names of the page for browsers."""
        pages = (
            ("/", self._overview),
            ("/history", self._history),
            ("/node/{name}", self._node),
            ("/pod/{namespace}/{name}", self._pod),
        )
        routes = [Route(path, self._page(make), methods=["GET"]) for path, make in pages]
        routes += [Route(f"/live{path}", _live(make), methods=["GET"]) for path, make in pages]
        routes += [
            Route("/events", self._events, methods=["GET"]),
            Route("/static/{file}", _static, methods=["GET"]),
        ]
        return Guard(Starlette(routes=routes), names)

    def _overview(self, request: Request) -> Page:
        view, query = self._view(), Query.read(request.query_params)
        parts = self._renderer.overview(view, self._answers(), query)
        return "overview", parts, {"view": view, "query": query}

    def _history(self, request: Request) -> Page:
        view, query = self._view(), Query.read(request.query_params)
        return "history", self._renderer.history(view, query), {"view": view}

    def _node(self, request: Request) -> Page:
        view, name = self._view(), str(request.path_params["name"])
        return "node", self._renderer.node(view, name), {"view": view, "name": name}

    def _pod(self, request: Request) -> Page:
        view = self._view()
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        return "pod", self._renderer.pod(view, key), {"view": view, "key": key}

    def _page(self, make: MakePage) -> Callable[[Request], Any]:
        async def answer(request: Request) -> responses.Response:
            template, parts, values = make(request)
            return responses.HTMLResponse(self._renderer.page(template, parts, **values))

        return answer

    async def _events(self, _: Request) -> responses.Response:
        if self._streams.is_full:
            return responses.PlainTextResponse(
                "too many windows show this page\n", 503, {"Retry-After": "10"}
            )
        # A proxy that gathers an answer before it hands it on would hold the messages back.
        unbuffered = {"X-Accel-Buffering": "no"}
        return responses.StreamingResponse(self._streams.messages(), 200, unbuffered, "text/event-stream")


def _live(make: MakePage) -> Callable[[Request], Any]:
    """The parts that changed: a browser sends the marks that it has, ``have=part.mark,part.mark``."""

    async def answer(request: Request) -> responses.Response:
        _, parts, values = make(request)
        marks = request.query_params.get("have", "").split(",")[:_MOST_MARKS]
        have = dict(one.split(".", 1) for one in marks if "." in one)
        news = {name: part for name, part in parts.items() if have.get(name) != part.mark}
        return responses.JSONResponse(
            {name: {"mark": part.mark, "html": part.html} for name, part in news.items()},
            headers={"X-Stale": "yes"} if values["view"].stale else None,
        )

    return answer


async def _static(request: Request) -> responses.Response:
    file = str(request.path_params["file"])
    if file not in _STATIC:  # no path that leads out of the folder is in it
        return responses.PlainTextResponse("this file does not exist\n", 404)
    return responses.FileResponse(FOLDER / "static" / file, media_type=_STATIC[file])


@contextmanager
def answering(address: str, server: WebServer) -> Iterator[None]:
    """Answer the kubelet's probes at ``host:port`` while the block runs; raises ConfigError.

    The process is alive while the view is computed, and ready when the whole cluster has been read.
    """

    def alive() -> str:
        return str(server.engine.failure or "")

    def ready() -> str:
        return "" if server.engine.view.synced else "the cluster is being read"

    served = endpoint(address, Probes(lambda: "", alive, ready))
    thread = threading.Thread(target=served.run, name="probes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        served.stop()
        thread.join()
