"""Knows how many kubelet plugins of this node serve, from the health service on their sockets.

One that serves is enough. A plugin that ends, or never was, does not serve.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from controller.plugin.watch import Stream
from proto import grpc_health_v1_pb2 as health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class PluginServing:
    """Calls ``on_change`` with the number of plugins that serve whenever it has changed; it is 0 at first.

    ``on_answer`` and ``on_end`` hear at which sockets somebody answers at all, and since when nobody does any
    more. ``stream`` is what has to be listened to.
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
