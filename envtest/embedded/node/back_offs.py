"""Works out how long a container that ended waits before it is started again, as the kubelet does.

Go: doBackOff in pkg/kubelet/kuberuntime/kuberuntime_manager.go over client-go's flowcontrol.Backoff: the
first restart is at once, the next after 10 s, then twice as long each time, five minutes at most.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _BackOff:
    """How long a container waits, and since when the back-off counts (time.monotonic)."""

    seconds: float
    updated: float


class ContainerBackOffs:
    """The back-off of each container, by the UID of its pod and its name. Thread-safe."""

    def __init__(self, first_seconds: float, most_seconds: float) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _BackOff] = {}

    def rest(self, pod_uid: str, name: str, ended: float) -> float:
        """How many seconds a container still has to wait that ended at ``ended`` (time.monotonic)."""
        with self._lock:
            known = self._known.get((pod_uid, name))
        if known is None or self._is_over(known, ended):
            return 0.0
        return max(ended + known.seconds - time.monotonic(), 0.0)

    def seconds(self, pod_uid: str, name: str) -> float:
        """How long it waits after each end."""
        with self._lock:
            known = self._known.get((pod_uid, name))
        return 0.0 if known is None else known.seconds

    def restarted(self, pod_uid: str, name: str, ended: float) -> None:
        """Note that a container is started again that ended at ``ended`` (time.monotonic)."""
        with self._lock:
            known = self._known.get((pod_uid, name))
            again = known is not None and not self._is_over(known, ended)
            seconds = min(known.seconds * 2, self._most) if again and known is not None else self._first
            self._known[pod_uid, name] = _BackOff(seconds, time.monotonic())

    def forget(self, pod_uid: str) -> None:
        """The pod has ended."""
        with self._lock:
            self._known = {key: one for key, one in self._known.items() if key[0] != pod_uid}

    def _is_over(self, known: _BackOff, ended: float) -> bool:
        """Whether a container ran for so long that its back-off starts again."""
        # flowcontrol.Backoff forgets an entry after twice its longest wait.
        return ended - known.updated > 2 * self._most
