"""The addresses of the page: HTML for a start, parts of it as JSON, and the stream of what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from gpuctl.web.serve.guard import Guard
from gpuctl.web.serve.query import Query
from gpuctl.web.serve.rendering import FOLDER, Parts, Renderer
from gpuctl.web.serve.streams import Streams

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from gpuctl.web.seen.view import View

STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
MOST_MARKS = 32

Made = tuple[str, Parts, dict[str, Any]]
"""A template, its parts, and its other values."""

Make = Callable[["Request"], Made]


class PageApp:
    """Answers requests from the latest view. All of it runs in the event loop, and nothing in it waits."""

    def __init__(
        self,
        view: Callable[[], View],
        answers: Callable[[], int],
        renderer: Renderer,
        streams: Streams,
    ) -> None:
        """``answers`` is the version of explain's answers."""
        self._view = view
        self._answers = answers
        self._renderer = renderer
        self._streams = streams

    def app(self, names: Iterable[str]) -> ASGIApp:
        """The application behind its guard; ``names`` are those by which it is reached."""
        pages = (
            ("/", self._overview),
            ("/history", self._history),
            ("/node/{name}", self._node),
            ("/pod/{namespace}/{name}", self._pod),
        )
        routes = [Route(path, self._page(make), methods=["GET"]) for path, make in pages]
        routes += [Route(f"/live{path}", _live(make), methods=["GET"]) for path, make in pages]
        routes += [
            Route("/events", self._events, methods=["GET"]),
            Route("/static/{file}", _static, methods=["GET"]),
        ]
        return Guard(Starlette(routes=routes), names)

    def _overview(self, request: Request) -> Made:
        view, query = self._view(), Query.read(request.query_params)
        parts = self._renderer.overview(view, self._answers(), query)
        return "overview", parts, {"view": view, "query": query}

    def _history(self, request: Request) -> Made:
        view, query = self._view(), Query.read(request.query_params)
        return "history", self._renderer.history(view, query), {"view": view}

    def _node(self, request: Request) -> Made:
        view, name = self._view(), str(request.path_params["name"])
        return "node", self._renderer.node(view, name), {"view": view, "name": name}

    def _pod(self, request: Request) -> Made:
        view = self._view()
        key = f"{request.path_params['namespace']}/{request.path_params['name']}"
        return "pod", self._renderer.pod(view, key), {"view": view, "key": key}

    def _page(self, make: Make) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            template, parts, values = make(request)
            return HTMLResponse(self._renderer.page(template, parts, **values))

        return answer

    async def _events(self, _: Request) -> Response:
        if self._streams.is_full:
            return PlainTextResponse("too many windows show this page\n", 503, {"Retry-After": "10"})
        # A proxy that gathers an answer before it hands it on would hold the messages back.
        unbuffered = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._streams.messages(), 200, unbuffered, "text/event-stream")


def _live(make: Make) -> Callable[[Request], Any]:
    """The parts whose marks the browser does not have: ``have`` is ``part.mark,part.mark``."""

    async def answer(request: Request) -> Response:
        _, parts, _ = make(request)
        marks = request.query_params.get("have", "").split(",")[:MOST_MARKS]
        have = dict(one.split(".", 1) for one in marks if "." in one)
        news = {name: part for name, part in parts.items() if have.get(name) != part.mark}
        return JSONResponse({name: {"mark": part.mark, "html": part.html} for name, part in news.items()})

    return answer


async def _static(request: Request) -> Response:
    file = str(request.path_params["file"])
    if file not in STATIC:
        return PlainTextResponse("there is no such file\n", 404)
    return FileResponse(FOLDER / "static" / file, media_type=STATIC[file])
