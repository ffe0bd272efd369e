"""Keeps one value for long-lived gRPC streams: each sees it at once, at every change and at intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

MAX_STREAMS = 4
"""Each stream holds a worker of the server, so that few streams leave most workers to calls."""


class StreamCall(Protocol):
    """What a stream needs of the gRPC call behind it (a grpc.ServicerContext has it)."""

    def is_active(self) -> bool:
        """Whether the client still listens."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call back when the call ends; False when it has ended already."""
        ...


class TooManyStreams(Exception):
    """As many streams as allowed are open already."""


class Published(Generic[T]):
    """A value that streams follow; safe to use from every thread.

    ``version`` starts at zero and grows by one with each new value.
    """

    def __init__(self, value: T, max_streams: int = MAX_STREAMS) -> None:
        """Begin with ``value``."""
        self._changed = threading.Condition()
        self._value = value
        self._version = 0
        self._closed = False
        self._places = threading.BoundedSemaphore(max_streams)

    @property
    def version(self) -> int:
        """How many times the value changed."""
        return self._version

    @property
    def value(self) -> T:
        """The value now."""
        return self._value

    def publish(self, value: T) -> bool:
        """Send ``value`` to all streams if it differs from the last one; says whether it does."""
        with self._changed:
            if self._closed or value == self._value:
                return False
            self._value = value
            self._version += 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End every stream after it got the last value; nothing can be published any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(self, call: StreamCall, resend_seconds: float | None = None) -> Iterator[T]:
        """The value now, at each change, and again after ``resend_seconds`` without one.

        A follower that is slower than the changes sees the last of them. Ends when the client is
        gone or after ``close``. The first step raises TooManyStreams when no place is free.
        """
        if not self._places.acquire(blocking=False):
            raise TooManyStreams
        try:
            call.add_callback(self._wake)
            seen = -1
            while True:
                with self._changed:
                    if not call.is_active() or (self._closed and seen == self._version):
                        return
                    seen, value = self._version, self._value
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
