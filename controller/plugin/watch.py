"""Finds the kubelet plugins of this node by their sockets, and keeps gRPC streams open to each of them.

Two plugins serve during a rolling update.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError

from controller.intervals import Intervals
from controller.plugin.grpc_call import CallFailed, GrpcCall
from driver.process.log import get_logger
from driver.process.sockets import checked_socket_path, service_socket_name
from driver.process.stamp import Stamp, stamp_of

Answer = TypeVar("Answer")

_log = get_logger(__name__)

MOST_PLUGINS = 4
"""The running plugin, in a rolling update the next, and two to spare."""


# How many times as long as usual a search for sockets waits while all plugins that were found are followed.
_QUIET_FACTOR = 10


@dataclass(frozen=True, slots=True)
class Stream(Generic[Answer]):
    """A streaming call to a plugin, and what to do with its answers.

    ``method`` is the full gRPC name, ``request`` the serialised request, and ``read`` parses an answer; it
    may raise ValueError or DecodeError. ``on_answer`` gets each answer, ``on_end`` is called at the end, both
    with the plugin's socket and in a listening thread.
    """

    method: str
    request: bytes
    read: Callable[[bytes], Answer]
    on_answer: Callable[[Path, Answer], None]
    on_end: Callable[[Path], None]


_Key = tuple["Path", str]


class PluginWatch:
    """Watches the sockets ``dra.sock`` and ``dra-*.sock`` in the plugin's folder.

    ``run`` searches for sockets in the caller's thread. Each stream to each plugin takes a worker of
    ``pool``, which needs MOST_PLUGINS workers for each of ``streams``. Raises ConfigError if the path of a
    socket in the folder would be too long.
    """

    def __init__(
        self,
        folder: Path,
        pool: ThreadPoolExecutor,
        stop_event: threading.Event,
        streams: Sequence[Stream[Any]],
        intervals: Intervals,
    ) -> None:
        self._folder = folder.absolute()
        # The path of a Unix socket has at most 107 bytes (sun_path in struct sockaddr_un).
        checked_socket_path(self._folder / service_socket_name())
        self._pool = pool
        self._stop_event = stop_event
        self._intervals = intervals
        self._streams = {stream.method: stream for stream in streams}
        self._lock = threading.Lock()
        self._calls: dict[_Key, GrpcCall] = {}
        self._codes: dict[_Key, str] = {}
        self._stream_ended = threading.Event()
        self._listed: tuple[Stamp | None, dict[Path, object]] = (None, {})

    def run(self) -> None:
        """Watch until the stop event is set, then end all streams."""
        listening: dict[_Key, Future[float]] = {}
        # When a stream that ended is opened again.
        again_at: dict[_Key, float] = {}
        # The streams that a driver of the same name does not have, such as NVIDIA's, with its socket: another
        # socket at the path is another plugin.
        unknown: dict[_Key, object] = {}
        listened_to: dict[_Key, object] = {}
        while not self._stop_event.is_set():
            for key in [key for key, future in listening.items() if future.done()]:
                again_at[key] = listening.pop(key).result() + self._intervals.listen_again_seconds
                if self._codes.get(key) == "UNIMPLEMENTED":
                    unknown[key] = listened_to[key]
            sockets = self._sockets()
            for key in [key for key, socket in unknown.items() if sockets.get(key[0]) != socket]:
                del unknown[key]
            for key in [(path, method) for path in sockets for method in self._streams]:
                due = time.monotonic() >= again_at.get(key, 0.0)
                if key not in listening and key not in unknown and due:
                    listened_to[key] = sockets[key[0]]
                    listening[key] = self._pool.submit(self._listen, *key)
                    listening[key].add_done_callback(lambda _: self._stream_ended.set())
            # While all streams are open there is no hurry: a plugin that takes over ends the other's streams.
            is_quiet = 0 < len(listening) == len(sockets) * len(self._streams)
            self._stream_ended.wait(self._intervals.socket_seconds * (_QUIET_FACTOR if is_quiet else 1))
            self._stream_ended.clear()
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            call.cancel()

    def _sockets(self) -> dict[Path, object]:
        """The sockets in the folder, each with a value that differs for a later socket at the same path."""
        try:
            # The time of a folder changes when an entry is made or removed; only then it is listed again.
            stamp = stamp_of(self._folder)
            if stamp is None or stamp != self._listed[0]:
                self._listed = stamp, self._list()
        except OSError:
            # The plugin has not made its folder yet, or we may not read it yet.
            self._listed = None, {}
        return self._listed[1]

    def _list(self) -> dict[Path, object]:
        found: dict[Path, object] = {}
        for path in self._folder.glob("dra*.sock"):
            if path.is_socket():
                # A plugin that ends removes its socket, maybe just now.
                with suppress(FileNotFoundError):
                    stat = path.lstat()
                    found[path] = stat.st_ino, stat.st_ctime_ns
        return found

    def _listen(self, path: Path, method: str) -> float:
        """Pass on the plugin's answers until the stream ends; returns when that was, in time.monotonic()."""
        stream, code = self._streams[method], "OK"
        try:
            call = GrpcCall(path, method, stream.request)
            self._began((path, method), call)
            for answer in call:
                self._codes.pop((path, method), None)
                stream.on_answer(path, _read(stream, answer))
        except CallFailed as error:
            code = error.code
        stream.on_end(path)
        self._ended((path, method), code)
        return time.monotonic()

    def stop(self) -> None:
        """Wake ``run``, which returns if the stop event is set."""
        self._stream_ended.set()

    def _began(self, key: _Key, call: GrpcCall) -> None:
        with self._lock:
            self._calls[key] = call
        # run() may have cancelled all calls before this one was among them.
        if self._stop_event.is_set():
            call.cancel()

    def _ended(self, key: _Key, code: str) -> None:
        with self._lock:
            self._calls.pop(key, None)
        if code != self._codes.get(key) and not self._stop_event.is_set():
            _log.info("cannot follow the kubelet plugin", socket=str(key[0]), call=key[1], code=code)
        self._codes[key] = code


def _read(stream: Stream[Answer], answer: bytes) -> Answer:
    try:
        return stream.read(answer)
    except (ValueError, DecodeError) as error:
        raise CallFailed("INTERNAL") from error
