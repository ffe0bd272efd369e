"""Notices when several kubelet plugins of this driver stay on one node: two releases are installed there."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Companions:
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
