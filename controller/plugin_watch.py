"""Knows whether the kubelet plugin of this node serves, from the health service on its sockets.

Two plugins serve during a rolling update; one that serves is enough. A plugin that ends, or never was,
does not serve.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import grpc

from driver.log import get_logger
from driver.names import checked_socket_path, service_socket_name
from proto import grpc_health_v1_pb2 as health

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future, ThreadPoolExecutor
    from pathlib import Path

_log = get_logger(__name__)

WORKERS = 4
"""One for each plugin that answers: the running one, in a rolling update the next, and two to spare."""

_METHOD = "/grpc.health.v1.Health/Watch"
_LOOK_SECONDS = 0.2
"""How often the folder is looked at for a new socket."""

_AGAIN_SECONDS = 0.5
_OPTIONS = (
    # Each try makes a connection of its own, without the waiting times that gRPC would share.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class PluginWatch:
    """Watches the sockets ``dra.sock`` and ``dra-*.sock`` in the plugin's folder.

    ``run`` looks for sockets in the caller's thread; each plugin that answers is listened to by one of
    the WORKERS of ``pool``. ``on_change`` is called there with the number of plugins that serve whenever it
    has changed; it is 0 at first. Raises ConfigError when a socket in the folder would have too long a path.
    """

    def __init__(
        self,
        folder: Path,
        pool: ThreadPoolExecutor,
        stop_event: threading.Event,
        on_change: Callable[[int], None],
    ) -> None:
        self._folder = folder.absolute()
        checked_socket_path(self._folder / service_socket_name())
        self._pool = pool
        self._stop_event = stop_event
        self._on_change = on_change
        self._lock = threading.Lock()
        self._serving: set[Path] = set()
        self._calls: dict[Path, grpc.Call] = {}
        self._unheard: dict[Path, str] = {}

    def run(self) -> None:
        """Watch until the stop event is set, then end all listening."""
        listening: dict[Path, Future[float]] = {}
        again_at: dict[Path, float] = {}
        while not self._stop_event.is_set():
            for path in [path for path, future in listening.items() if future.done()]:
                again_at[path] = listening.pop(path).result() + _AGAIN_SECONDS
            for path in self._sockets():
                if path not in listening and time.monotonic() >= again_at.get(path, 0.0):
                    listening[path] = self._pool.submit(self._listen, path)
            self._stop_event.wait(_LOOK_SECONDS)
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            call.cancel()

    def _sockets(self) -> list[Path]:
        try:
            return [path for path in self._folder.glob("dra*.sock") if path.is_socket()]
        except OSError:
            return []  # the plugin has not made its folder yet, or not opened it to us

    def _listen(self, path: Path) -> float:
        """Take in what the plugin tells until it ends; when that was, in time.monotonic()."""
        code = "OK"
        try:
            with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
                watch = channel.unary_stream(
                    _METHOD,
                    request_serializer=health.HealthCheckRequest.SerializeToString,
                    response_deserializer=health.HealthCheckResponse.FromString,
                )
                call = watch(health.HealthCheckRequest(service=""))
                self._began(path, call)
                for answer in call:
                    self._heard(path, serving=answer.status == health.HealthCheckResponse.SERVING)
        except grpc.RpcError as error:
            code = error.code().name
        self._ended(path, code)
        return time.monotonic()

    def _began(self, path: Path, call: grpc.Call) -> None:
        with self._lock:
            self._calls[path] = call
        if self._stop_event.is_set():
            call.cancel()

    def _ended(self, path: Path, code: str) -> None:
        self._heard(path, serving=False)
        with self._lock:
            self._calls.pop(path, None)
        if code != self._unheard.get(path) and not self._stop_event.is_set():
            _log.info("kubelet plugin not heard", socket=str(path), code=code)
        self._unheard[path] = code

    def _heard(self, path: Path, *, serving: bool) -> None:
        with self._lock:
            before = len(self._serving)
            if serving:
                self._serving.add(path)
                self._unheard.pop(path, None)
            else:
                self._serving.discard(path)
            if len(self._serving) != before:
                self._on_change(len(self._serving))
