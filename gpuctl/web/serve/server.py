"""Serves the page until it is stopped: its addresses, the stream of changes, and probes beside it.

Nothing is left running at the end.
"""

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
from starlette.applications import Starlette
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
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

Made = tuple[str, Parts, dict[str, Any]]
"""A template, its parts, and its other values."""

Make = Callable[["Request"], Made]


def bound(address: str) -> socket.socket:
    """A socket that listens at ``host:port``, port 0 for any; raises ConfigError where none can."""
    host, port = _host_and_port(address)
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot serve at {address}: {error}", "give --addr a free host:port") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise ConfigError(f"cannot serve at {address}: {error}", "give --addr a free host:port") from error
    return made


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address; raises ConfigError where it is none."""
    return _host_and_port(address)[0] in LOOPBACK


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        raise ConfigError(f"{address!r} is no address", "write host:port, for example 127.0.0.1:8470")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_of(made: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = made.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class _Server(uvicorn.Server):
    """Ends its streams first when it is stopped: it would wait for them."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGINT and SIGTERM end it."""
        self._streams.close()
        super().handle_exit(sig, frame)


class WebServer:
    """The page over a connection to a cluster."""

    def __init__(self, client: KubeClient, title: str, names: Iterable[str]) -> None:
        """``title`` names the cluster for people, ``names`` are those by which the page is reached."""
        self.engine = Engine(client)
        self.streams = Streams()
        self._answers = Answers(client, self._changed)
        renderer = Renderer(title, self._answers.known, self._answers.ask)
        app = PageApp(lambda: self.engine.view, lambda: self._answers.version, renderer, self.streams)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = _Server(_config(app.app(names)), self.streams)
        self.engine.listen(self._take)

    def _take(self, view: View) -> None:
        self._answers.take(view)
        self._changed()

    def _changed(self) -> None:
        """Send the new version to the streams, in the thread of the event loop."""
        version = f"{self.engine.view.version}.{self._answers.version}"
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: the server ends
                self._loop.call_soon_threadsafe(self.streams.tell, version)

    def run(self, made: socket.socket) -> None:
        """Serve at a bound socket until ``stop``, or in the main thread SIGINT or SIGTERM."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # Before uvicorn takes them, and once more when it has ended, which is nothing any more then.
                signal.signal(number, self._server.handle_exit)
        asyncio.run(self._serve(made))

    async def _serve(self, made: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers.start()
        self.engine.start()
        try:
            await self._server.serve([made])
        finally:
            self._loop = None
            self.engine.stop()
            self._answers.stop()

    def stop(self) -> None:
        """End ``run``, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._server.handle_exit, signal.SIGTERM, None)


def _config(app: ASGIApp) -> uvicorn.Config:
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
    """Answers requests from the latest view. All of it runs in the event loop, and nothing in it waits."""

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
        """The application behind its guard; ``names`` are those by which it is reached."""
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

    def _overview(self, request: Request) -> Made:
        view, query = self._view(), Query.read(request.query_params)
        parts = self._renderer.overview(view, self._answers(), query)
        return "overview", parts, {"view": view, "query": query}

    def _history(self, request: Request) -> Made:
        view, query = self._view(), Query.read(request.query_params)
        return "history", self._renderer.history(view, query), {"view": view}

    def _node(self, request: Request) -> Made:
        view, name = self._view(), str(request.path_params["name"])
        return "node", self._renderer.node(view, name), {"view": view, "name": name}

    def _pod(self, request: Request) -> Made:
        view = self._view()
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        return "pod", self._renderer.pod(view, key), {"view": view, "key": key}

    def _page(self, make: Make) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            template, parts, values = make(request)
            return HTMLResponse(self._renderer.page(template, parts, **values))

        return answer

    async def _events(self, _: Request) -> Response:
        if self._streams.is_full:
            return PlainTextResponse("too many windows show this page\n", 503, {"Retry-After": "10"})
        # A proxy that gathers an answer before it hands it on would hold the messages back.
        unbuffered = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._streams.messages(), 200, unbuffered, "text/event-stream")


def _live(make: Make) -> Callable[[Request], Any]:
    """The parts whose marks the browser does not have: ``have`` is ``part.mark,part.mark``."""

    async def answer(request: Request) -> Response:
        _, parts, _ = make(request)
        marks = request.query_params.get("have", "").split(",")[:_MOST_MARKS]
        have = dict(one.split(".", 1) for one in marks if "." in one)
        news = {name: part for name, part in parts.items() if have.get(name) != part.mark}
        return JSONResponse({name: {"mark": part.mark, "html": part.html} for name, part in news.items()})

    return answer


async def _static(request: Request) -> Response:
    file = str(request.path_params["file"])
    if file not in _STATIC:
        return PlainTextResponse("there is no such file\n", 404)
    return FileResponse(FOLDER / "static" / file, media_type=_STATIC[file])


@contextmanager
def answering(address: str, server: WebServer) -> Iterator[None]:
    """Answer at ``host:port`` as long as the block runs; raises ConfigError.

    Alive while the view is computed, ready once the whole cluster was read.
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
