"""Reads the events of one watch request as they arrive, and can be ended from another thread."""

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

    Iterate once, in one thread; ``close`` may be called from any. Iterating ends when the server ends
    the watch in good order or ``close`` is called. It raises the error of an ERROR event (Gone when
    the resourceVersion is too old), Silent when nothing comes for ``idle_seconds``, and Unreachable when
    the connection breaks.
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
        if isinstance(response.connection, BoundedHTTPConnection):
            response.connection.arriving.allow_pauses(idle_seconds)

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events, see the class."""
        try:
            for line in self._lines():
                event = decode_json(line)
                if event["type"] == "ERROR":
                    status = event.get("object") or {}
                    raise error_of_status(self._request, int(status.get("code") or 500), status)
                yield event["type"], event["object"]
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Silent(f"nothing came on {self._request} for too long", "watch again") from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            # ValueError and its kin also come from a socket that close() shut meanwhile.
            if not self._closed:
                raise Unreachable(f"{self._request} broke off, {error}", "watch again") from error
        finally:
            self._response.close()
            self._on_close(self)

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.stream(_CHUNK_BYTES, decode_content=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if self._closed:
                    return
                if line:
                    yield line

    def close(self) -> None:
        """End the watch now; a blocked read returns."""
        self._closed = True
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            # Nothing is left to wake: the stream has ended by itself.
            self._on_close(self)
