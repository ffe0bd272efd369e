"""Refuses requests that do not come from the person at the browser, and limits what the page can do there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Every web site that the browser shows can reach a page on loopback, by a name of its own that it lets lead
# to 127.0.0.1 (DNS rebinding). The browser then sends that name, so only requests to known names are
# answered.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

# Scripts and styles come from files alone: a name of an object that got into the page unescaped would still
# do nothing. And no other site can show the page in a frame and have people click in it.
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
    """The name in a Host header without its port, in lower case: ``[::1]:80`` gives ``::1``."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Guard:
    """Lets GET and HEAD requests to a known name through, and refuses all others."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        """``names`` are the names of the page beside those of loopback."""
        self._app = app
        self._names = LOOPBACK | {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI), with the headers added to the answer."""
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
        # ASGI gives the names of headers in lower case.
        headers: dict[bytes, bytes] = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or host_name(hosts[0].decode("latin-1")) not in self._names:
            return 421, "this page is not served under that name; allow it with gpuctl web --name"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page can only be read: use GET or HEAD"
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > _MOST_TARGET_BYTES:
            return 414, "the address is too long"
        # The browser says which site made a request (Fetch Metadata). Another site may link to a page here,
        # but not fetch one, nor load it as a script or picture.
        foreign = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
        if foreign and headers.get(b"sec-fetch-mode") != b"navigate":
            return 403, "requests from another site are refused"
        return None
