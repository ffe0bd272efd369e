"""What a query string asks for: the pages of long lists, and which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args
from urllib.parse import urlencode

from gpuctl.fleet.nodes import NodeView
from gpuctl.web.seen.view import View

Item = TypeVar("Item")
Show = Literal["all", "sick", "free", "used"]

LINES_PER_PAGE = 20
_PER_PAGE = {
    "page": 50,
    "sick_page": LINES_PER_PAGE,
    "waiting_page": LINES_PER_PAGE,
    "history_page": 100,
}
"""The items on a page of each list, by the parameter that has the page's number."""

MOST_FILTER_CHARACTERS = 253
"""The longest name of an object in Kubernetes."""

_MOST_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Query:
    """A query string, without what makes no sense in it.

    ``pages`` has the page of each list by its parameter; a list that is missing is on page 1.
    """

    filter: str = ""
    show: Show = "all"
    pages: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Query:
        """Read a query string."""
        show = params.get("show", "all")
        pages = tuple(
            (name, int(value))
            for name in _PER_PAGE
            if (value := params.get(name, "")).isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        )
        return cls(
            params.get("q", "")[:MOST_FILTER_CHARACTERS].strip(),
            show if show in get_args(Show) else "all",  # type: ignore[arg-type]  # it is one of them
            tuple((name, page) for name, page in pages if page > 1),
        )

    def page(self, name: str, items: Sequence[Item]) -> Page[Item]:
        """The page of a list that is asked for, or the last one if there are fewer."""
        size = _PER_PAGE[name]
        last = max(1, -(-len(items) // size))  # rounded up
        number = min(dict(self.pages).get(name, 1), last)
        return Page(items[(number - 1) * size : number * size], number, last, len(items))

    def link(self, name: str, page: int) -> str:
        """The query string for another page of a list, with everything else unchanged."""
        pages = {**dict(self.pages), name: page}
        own = {"q": self.filter, "show": "" if self.show == "all" else self.show}
        found = {**own, **{key: str(value) for key, value in pages.items() if value > 1}}
        return f"?{urlencode({key: value for key, value in found.items() if value})}"


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of a list; ``number`` is from 1 to ``last``."""

    items: Sequence[Item]
    number: int
    last: int
    total: int


def chosen(view: View, query: Query) -> list[NodeView]:
    """The nodes that the browser asked for, sick ones first."""
    wanted = query.filter.lower()
    nodes = (view.nodes[name] for name in view.order)
    return [
        node
        for node in nodes
        if (not wanted or wanted in node.name.lower() or wanted in (node.state.product or "").lower())
        and _shown(node, query.show)
    ]


def _shown(node: NodeView, show: Show) -> bool:
    match show:
        case "sick":
            return node.is_amiss
        case "free":
            return any(gpu.use == "free" and not gpu.blocked for gpu in node.gpus)
        case "used":
            return any(gpu.use != "free" for gpu in node.gpus)
        case _:
            return True
