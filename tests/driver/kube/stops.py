"""A stop event that makes waiting visible instead of lasting."""

import threading


class CountingStop(threading.Event):
    """Never lets anybody wait; sets itself at the ``most``-th wait. ``waits`` are the seconds asked for."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        if len(self.waits) >= self._most:
            self.set()
        return self.is_set()
