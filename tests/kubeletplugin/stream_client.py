"""The client of one stream of the plugin."""

from collections.abc import Callable


class StreamClient:
    """It listens until it leaves."""

    def __init__(self) -> None:
        self._active = True
        self._callbacks: list[Callable[[], None]] = []

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self._active

    def leave(self) -> None:
        self._active = False
        for callback in self._callbacks:
            callback()
