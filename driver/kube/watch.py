"""Reads the events of one watch request as they arrive. Another thread can end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from driver.kube.bounded import BoundedHTTPConnection
from driver.kube.decode import decode_json
from driver.kube.errors import Silent, Unreachable, error_of_status

_CHUNK_BYTES = 65536


class WatchStream:
    """The events of a watch, as pairs of type (ADDED, MODIFIED, DELETED, BOOKMARK) and object.

    Iterate once, in one thread; ``close`` may be called from any thread. The iteration ends if the server
    ends the watch properly or ``close`` is called. It raises the error of an ERROR event (Gone if the
    resourceVersion is too old), Silent if nothing comes for ``idle_seconds``, and Unreachable if the
    connection breaks.
    """

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        request: str,
        idle_seconds: float,
        on_close: Callable[[WatchStream], None],
    ) -> None:
        self._response = response
        self._request = request
        self._on_close = on_close
        self._closed = False
        # From here on the answer may take for ever, but must not pause for too long.
        if isinstance(response.connection, BoundedHTTPConnection):
            response.connection.arriving.allow_pauses(idle_seconds)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events, as the class describes them."""
        try:
            for line in self._lines():
                # A watch is a stream of JSON documents, one a line, of type WatchEvent.
                event = decode_json(line)
                if event["type"] == "ERROR":
                    status = event.get("object") or {}
                    # An error after the headers cannot be a status code any more, so it comes as an event
                    # with a Status.
                    raise error_of_status(self._request, int(status.get("code") or 500), status)
                yield event["type"], event["object"]
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Silent(f"the watch {self._request} was silent for too long", "watch again") from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            # ValueError and the like also come from a socket that close() has shut down.
            if not self._closed:
                raise Unreachable(f"the watch {self._request} ended early, {error}", "watch again") from error
        finally:
            self._response.close()
            self._on_close(self)

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(_CHUNK_BYTES, decode_content=True):
            # A chunk of HTTP may end in the middle of a line.
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if self._closed:
                    return
                if line:
                    yield line

    def close(self) -> None:
        """End the watch now. A blocked read returns."""
        self._closed = True
        try:
            # Shuts down the reading side of the socket, which wakes a thread that is blocked in recv(2).
            # Closing it from here would not.
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            # The stream has ended by itself.
            self._on_close(self)
