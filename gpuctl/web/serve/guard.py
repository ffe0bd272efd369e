"""Keeps others than the person at the browser away, and the browser from doing more than show the page.

A page on loopback can be reached by every web site that the same browser shows, by a name that its owner has
lead to 127.0.0.1 (DNS rebinding). So only requests to names that this page is known by are answered. Scripts
and styles come from files alone, so that a name that got into the page unescaped would still do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_MOST_TARGET_BYTES = 4096


def host_name(header: str) -> str:
    """The name of a Host header without its port, in lower case: ``[::1]:80`` is ``::1``."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Guard:
    """Answers requests by GET and HEAD to a known name, and refuses all others."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        """``names`` are those by which the page is reached, beside those of loopback."""
        self._app = app
        self._names = LOOPBACK | {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a good request on, with the headers added to its answer."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *own]
            await send(message)

        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, receive, guarded)
            return
        from starlette.responses import PlainTextResponse

        status, words = refused
        await PlainTextResponse(f"{words}\n", status)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or host_name(hosts[0].decode("latin-1")) not in self._names:
            return 421, "this page is not known by that name; see gpuctl web --help, --name"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page is only read"
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > _MOST_TARGET_BYTES:
            return 414, "the address is too long"
        # A browser says of a request who made it (Fetch Metadata). Another site may lead here, no more.
        foreign = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
        if foreign and headers.get(b"sec-fetch-mode") != b"navigate":
            return 403, "another site asks for this"
        return None
