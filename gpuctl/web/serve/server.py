"""Binds the address and runs the page until it is told to end; nothing is left running then."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import uvicorn

from driver.errors import ConfigError
from gpuctl.web.serve.app import PageApp
from gpuctl.web.serve.guard import LOOPBACK
from gpuctl.web.serve.rendering import Renderer
from gpuctl.web.serve.streams import Streams
from gpuctl.web.watch.answers import Answers
from gpuctl.web.watch.engine import Engine

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import ASGIApp

    from driver.kube.client import KubeClient
    from gpuctl.web.seen.view import View

MOST_CONNECTIONS = 256
_END_SECONDS = 2
_LAST_PORT = 65535
_BACKLOG = 128


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
    """Ends its streams first when it is told to end: it would wait for them."""

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
        """Have the streams told, in the thread of the event loop."""
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
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=_END_SECONDS,
    )
