"""Knows how many kubelet plugins of this node serve, from the health service on their sockets.

One that serves is enough. A plugin that ends, or never was, does not serve. Several that serve for long are
two releases of the driver that are installed on the node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from controller.plugin.watch import Stream
from proto import grpc_health_v1_pb2 as health


class PluginServing:
    """Calls ``on_change`` with the number of plugins that serve whenever it has changed; it is 0 at first.

    ``on_answer`` is called with each socket where a plugin answers, ``on_end`` when it no longer does.
    ``stream`` is the stream to open at each plugin.
    """

    def __init__(
        self,
        on_change: Callable[[int], None],
        on_answer: Callable[[Path], None] = lambda _path: None,
        on_end: Callable[[Path], None] = lambda _path: None,
    ) -> None:
        self._on_change = on_change
        self._on_answer = on_answer
        self._on_end = on_end
        self._lock = threading.Lock()
        self._serving: set[Path] = set()

    def stream(self) -> Stream[health.HealthCheckResponse]:
        """The plugin's health as a whole."""
        return Stream(
            "/grpc.health.v1.Health/Watch",
            health.HealthCheckRequest(service="").SerializeToString(),
            health.HealthCheckResponse.FromString,
            self._answered,
            self._ended,
        )

    def _answered(self, path: Path, answer: health.HealthCheckResponse) -> None:
        self._on_answer(path)
        self._heard(path, answer.status == health.HealthCheckResponse.SERVING)

    def _ended(self, path: Path, _code: str) -> None:
        self._heard(path, serving=False)
        self._on_end(path)

    def _heard(self, path: Path, serving: bool) -> None:
        with self._lock:
            before = len(self._serving)
            if serving:
                self._serving.add(path)
            else:
                self._serving.discard(path)
            if len(self._serving) != before:
                self._on_change(len(self._serving))


class SeveralPlugins:
    """Tells once, in a sentence, that several plugins have served for ``after_seconds`` without a break.

    In a rolling update two do for moments. Safe to use from every thread.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        after_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._after_seconds = after_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._since: float | None = None
        self._told = False

    def serving(self, count: int) -> None:
        """Take in how many serve now."""
        with self._lock:
            self._count = count
            if count < 2:
                self._since, self._told = None, False
            elif self._since is None:
                self._since = self._clock()

    def check(self) -> None:
        """Tell when it has come to that."""
        with self._lock:
            if self._since is None or self._told or self._clock() - self._since < self._after_seconds:
                return
            self._told = True
            count, minutes = self._count, (self._clock() - self._since) / 60
        self._tell(
            f"{count} kubelet plugins have served on this node for {minutes:.0f} minutes: two releases of "
            "the driver are installed, or an update hangs half-way; look for pods of gpu-dra-kubeletplugin "
            "in all namespaces, and keep one release"
        )
