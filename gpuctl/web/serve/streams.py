"""Tells browsers by server-sent events that something changed; they fetch the changes themselves.

A message has only versions, so a slow browser that misses messages misses nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

MOST_STREAMS = 64
"""The most windows of browsers at a time; each takes a connection."""

BEAT_SECONDS = 20.0
"""If nothing changes, a comment is sent so often, so that each end notices when the other is gone."""

RETRY_MILLISECONDS = 2000
"""How long a browser waits before it connects again."""


class Streams:
    """The open streams of one event loop. Everything but ``open_count`` is for the loop's own thread."""

    def __init__(self, most: int = MOST_STREAMS, beat_seconds: float = BEAT_SECONDS) -> None:
        self._most = most
        self._beat_seconds = beat_seconds
        self._open: set[asyncio.Event] = set()
        self._message = b""
        self._closed = False

    @property
    def open_count(self) -> int:
        """How many streams are open."""
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether one more stream is refused."""
        return self._closed or len(self._open) >= self._most

    def tell(self, version: str) -> None:
        """Tell all browsers that the page has a new version."""
        self._message = f"event: changed\ndata: {json.dumps({'version': version})}\n\n".encode()
        for one in self._open:
            one.set()

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._closed = True
        for one in self._open:
            one.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """The bytes for one browser, the latest message first, until it leaves or the server ends."""
        changed = asyncio.Event()
        self._open.add(changed)
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            yield self._message
            while not self._closed:
                try:
                    await asyncio.wait_for(changed.wait(), self._beat_seconds)
                    changed.clear()
                    if not self._closed:
                        yield self._message
                except TimeoutError:
                    yield b": still here\n\n"  # a line that begins with a colon is a comment
        finally:
            self._open.discard(changed)
