"""Knows whether the kubelet has the plugin registered right now, so that claims would reach it.

A kubelet that is asked to start a pod before it knows the plugin fails the pod, and comes back to it
only after a minute. So devices are published when it has said that the plugin is registered, and not
while it restarts: then its health stream breaks, and stays away until it has registered us again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class KubeletContact:
    """Calls ``up`` and ``down`` when the kubelet comes and goes; safe to use from every thread."""

    def __init__(self, up: Callable[[], None], down: Callable[[], None]) -> None:
        self._up, self._down = up, down
        self._lock = threading.Lock()
        self._registered = False
        self._streams = 0
        self._lost = False

    def told(self, registered: bool) -> None:
        """The kubelet said whether it took the plugin."""
        with self._lock:
            self._registered, self._lost = registered, False
            self._tell()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A health stream of the kubelet is open. A kubelet without one (before 1.36) is not missed."""
        with self._lock:
            self._streams += 1
            self._lost = False
            self._tell()
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1
                self._lost = self._streams == 0
                self._tell()

    def _tell(self) -> None:
        if self._registered and not self._lost:
            self._up()
        else:
            self._down()
