"""Keeps one value for long-lived gRPC streams: each gets it at once, at every change and at intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

MAX_STREAMS = 4
"""The limit on open streams. Each occupies a worker of the server, and most workers are for calls."""


class StreamCall(Protocol):
    """What a stream needs of its gRPC call; grpc.ServicerContext has both methods."""

    def is_active(self) -> bool:
        """Whether the client is still connected."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call ``callback`` when the call ends; returns False if it has ended already."""
        ...


class TooManyStreams(Exception):
    """The limit of open streams is reached."""


class Published(Generic[T]):
    """A value that streams follow; safe to use from any thread."""

    def __init__(self, value: T, max_streams: int = MAX_STREAMS) -> None:
        """Start with ``value``."""
        self._changed = threading.Condition()
        self._value = value
        self._version = 0
        self._closed = False
        self._places = threading.BoundedSemaphore(max_streams)

    @property
    def value(self) -> T:
        """The value now."""
        return self._value

    def publish(self, value: T) -> bool:
        """Send ``value`` to all streams if it differs from the last one; returns whether it does."""
        with self._changed:
            if self._closed or value == self._value:
                return False
            self._value = value
            self._version += 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End every stream after it got the last value; later values are ignored."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(self, call: StreamCall, resend_seconds: float | None = None) -> Iterator[T]:
        """The value now, at each change, and again after ``resend_seconds`` without a change.

        A follower that is slower than the changes gets only the last of them. Ends when the client is gone,
        or after ``close``. The first step raises TooManyStreams if the limit is reached.
        """
        if not self._places.acquire(blocking=False):
            raise TooManyStreams
        try:
            # gRPC does not interrupt a handler when its client goes away; the callback ends its wait.
            call.add_callback(self._wake)
            seen = -1
            while True:
                with self._changed:
                    if not call.is_active() or (self._closed and seen == self._version):
                        return
                    seen, value = self._version, self._value
                # Outside of the lock: the consumer of the generator may take its time.
                yield value
                self._wait(call, seen, resend_seconds)
        finally:
            self._places.release()

    def _wait(self, call: StreamCall, seen: int, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while self._version == seen and not self._closed and call.is_active():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._changed.wait(left)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
