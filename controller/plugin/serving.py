"""Counts the kubelet plugins of this node that serve, by the gRPC health service on their sockets.

One that serves is enough to publish. If several serve for a long time, two releases of the driver are
installed on the node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from controller.plugin.watch import Stream
from proto import grpc_health_v1_pb2 as health


class PluginServing:
    """Calls ``on_change`` with the number of plugins that serve whenever it changes; it is 0 at first."""

    def __init__(self, on_change: Callable[[int], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._serving: set[Path] = set()

    def stream(self) -> Stream[health.HealthCheckResponse]:
        """The stream to open at each plugin."""
        # An empty service name asks for the health of the whole server (gRPC health checking protocol).
        return Stream(
            "/grpc.health.v1.Health/Watch",
            health.HealthCheckRequest(service="").SerializeToString(),
            health.HealthCheckResponse.FromString,
            self._answered,
            self._ended,
        )

    def _answered(self, path: Path, answer: health.HealthCheckResponse) -> None:
        self._set_serving(path, answer.status == health.HealthCheckResponse.SERVING)

    def _ended(self, path: Path) -> None:
        self._set_serving(path, serving=False)

    def _set_serving(self, path: Path, serving: bool) -> None:
        with self._lock:
            # A set, as a plugin may report the same state several times.
            before = len(self._serving)
            if serving:
                self._serving.add(path)
            else:
                self._serving.discard(path)
            if len(self._serving) != before:
                self._on_change(len(self._serving))


class SeveralPlugins:
    """Reports once, in a sentence, that several plugins have served for ``after_seconds`` without a break.

    Safe to use from every thread.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        after_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._after_seconds = after_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._since: float | None = None
        self._reported = False

    def serving(self, count: int) -> None:
        """Take in how many serve now."""
        with self._lock:
            self._count = count
            # In a rolling update two plugins serve for moments.
            if count < 2:
                self._since, self._reported = None, False
            elif self._since is None:
                self._since = self._clock()

    def check(self) -> None:
        """Report it if the time has come."""
        with self._lock:
            if self._since is None or self._reported or self._clock() - self._since < self._after_seconds:
                return
            self._reported = True
            count, minutes = self._count, (self._clock() - self._since) / 60
        self._report(
            f"{count} kubelet plugins have served on this node for {minutes:.0f} minutes: two releases of "
            "the driver are installed, or an update hangs; look for pods of gpu-dra-kubeletplugin in all "
            "namespaces, and keep one release"
        )
