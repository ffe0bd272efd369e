"""Makes HTML of a reading of the cluster: the overview, a node, and a pod with explain's answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from gpuctl.cli.output import printable
from gpuctl.explain.findings import Explanation
from gpuctl.fleet.devices import meaning
from gpuctl.fleet.gpus import GpuState, Use
from gpuctl.fleet.nodes import NodeView
from gpuctl.web.view import View, gpu_details

Item = TypeVar("Item")
Show = Literal["all", "sick", "free", "used"]

_FOLDER = Path(__file__).parent / "templates"
_PER_PAGE = {"page": 50, "problems_page": 20, "waiting_page": 20}
"""The items on a page of each list, by the parameter that has the page's number."""

_MOST_FILTER_CHARACTERS = 253
"""The longest name of an object in Kubernetes."""

_MOST_DIGITS = 6
_COMMAND = re.compile(r"`([^`]+)`")

USE_WORDS: Mapping[Use, str] = {
    "whole": "whole",
    "partition": "in partitions",
    "shared": "in shares",
    "machine": "for a virtual machine",
    "several": "in several forms",
    "free": "free",
}
"""The words for each ``GpuState.use``."""

_UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of a list; ``number`` is from 1 to ``last``."""

    items: Sequence[Item]
    number: int
    last: int
    total: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query string, without what makes no sense in it; ``pages`` has the page of each list."""

    filter: str
    show: Show
    pages: Mapping[str, int]

    @classmethod
    def read(cls, params: Mapping[str, str]) -> Query:
        """Read a query string."""
        show = params.get("show", "all")
        pages = {
            name: int(value)
            for name in _PER_PAGE
            if (value := params.get(name, "")).isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        }
        return cls(
            params.get("q", "")[:_MOST_FILTER_CHARACTERS].strip(),
            show if show in get_args(Show) else "all",  # type: ignore[arg-type]  # it is one of them
            pages,
        )

    def page(self, name: str, items: Sequence[Item]) -> Page[Item]:
        """The page of a list that is asked for, or the last one if there are fewer."""
        size = _PER_PAGE[name]
        last = max(1, -(-len(items) // size))  # rounded up
        number = min(max(1, self.pages.get(name, 1)), last)
        return Page(items[(number - 1) * size : number * size], number, last, len(items))

    def link(self, name: str, page: int) -> str:
        """The query string for another page of a list, with everything else unchanged."""
        own = {"q": self.filter, "show": "" if self.show == "all" else self.show}
        pages = {key: str(value) for key, value in {**self.pages, name: page}.items() if value > 1}
        return f"?{urlencode({key: value for key, value in {**own, **pages}.items() if value})}"

    def nodes(self, view: View) -> list[NodeView]:
        """The nodes that are asked for, sick ones first."""
        wanted = self.filter.lower()
        return [
            node
            for node in view.nodes
            if (not wanted or wanted in node.name.lower() or wanted in (node.state.product or "").lower())
            and self._shows(node)
        ]

    def _shows(self, node: NodeView) -> bool:
        match self.show:
            case "sick":
                return node.is_amiss
            case "free":
                return any(gpu.use == "free" and not gpu.blocked for gpu in node.gpus)
            case "used":
                return any(gpu.use != "free" for gpu in node.gpus)
            case _:
                return True


class Pages:
    """Makes the pages of a cluster; ``stale`` says why they do not show it as it is now."""

    def __init__(self, title: str) -> None:
        """``title`` names the cluster."""
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            # Names, labels and messages are written by tenants and nodes.
            autoescape=True,
            finalize=_printable,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["gpu_words"] = gpu_words
        self._templates.globals.update(
            cluster=title,
            meaning=meaning,
            with_commands=with_commands,
            use_words=USE_WORDS,
            gpu_words=gpu_words,
            use_of=use_of,
            node_words=node_words,
            summary_words=summary_words,
            percent=percent,
            node_link=node_link,
            pod_link=pod_link,
        )

    def overview(
        self,
        view: View,
        stale: str,
        params: Mapping[str, str],
        answers: Mapping[tuple[str, str], Explanation],
    ) -> str:
        """The first page; ``answers`` are explain's, as far as they are known."""
        query = Query.read(params)
        return self._made(
            "overview",
            view=view,
            stale=stale,
            query=query,
            answers=answers,
            problems=query.page("problems_page", view.problems),
            waiting=query.page("waiting_page", view.waiting),
            nodes=query.page("page", query.nodes(view)),
        )

    def listed_pods(self, view: View, params: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The waiting pods that the first page shows: namespace and name."""
        for pod in Query.read(params).page("waiting_page", view.waiting).items:
            yield pod.namespace, pod.name

    def node(self, view: View, stale: str, name: str) -> str:
        """A node in full, or that it publishes nothing."""
        node = next((one for one in view.nodes if one.name == name), None)
        details = gpu_details(view, node) if node else ()
        return self._made("node", view=view, stale=stale, name=name, node=node, details=details)

    def pod(self, view: View, stale: str, key: str, answer: Explanation | None, failure: str | None) -> str:
        """Explain's answer about a pod, or why there is none; None while it is being worked out."""
        pod = view.pods.get(key)
        return self._made("pod", view=view, stale=stale, key=key, pod=pod, answer=answer, failure=failure)

    def unread(self, failure: str) -> str:
        """The page while nothing could be read yet."""
        return self._made("unread", view=None, stale=failure)

    def _made(self, template: str, /, **values: Any) -> str:
        return self._templates.get_template(f"{template}.html").render(**values)


def _printable(value: Any) -> Any:
    """A value as text without characters that turn a line around or do worse; HTML as it is."""
    return value if isinstance(value, Markup) else printable(str(value))


def node_link(name: str) -> str:
    """The address of a node's page."""
    return f"/node/{quote(name, safe='')}"


def pod_link(key: str) -> str:
    """The address of a pod's page."""
    namespace, _, name = key.partition("/")
    return f"/pod/{quote(namespace, safe='')}/{quote(name, safe='')}"


def percent(part: float) -> str:
    """A part in percent. Only all is 100 %, and only nothing is 0 %."""
    whole = round(part * 100)
    if 0 < part < 1:
        whole = min(99, max(1, whole))
    return f"{whole} %"


def gpu_words(gpu: GpuState) -> str:
    """``GPU 3: in partitions, 43 % held by 3 claims; tainted gpu.nvidia.com/xid=79:NoSchedule``."""
    name = gpu.title if gpu.index is None else f"GPU {gpu.index}"
    taints = f"; tainted {', '.join(str(one.taint) for one in gpu.taints)}" if gpu.taints else ""
    return f"{name}: {use_of(gpu)}{taints}"


def use_of(gpu: GpuState) -> str:
    """``in partitions, 43 % held by 3 claims``."""
    if gpu.use == "free":
        return _UNAVAILABLE if gpu.blocked else USE_WORDS["free"]
    claims = "1 claim" if gpu.claims == 1 else f"{gpu.claims} claims"
    return f"{USE_WORDS[gpu.use]}, {percent(gpu.used)} held by {claims}"


def node_words(node: NodeView) -> str:
    """``8 GPUs: 3 whole, 1 in partitions, 4 free; 1 sick``."""
    uses = Counter(
        _UNAVAILABLE if gpu.use == "free" and gpu.blocked else USE_WORDS[gpu.use] for gpu in node.gpus
    )
    parts = [f"{count} {words}" for words, count in sorted(uses.items())]
    number = "1 GPU" if len(node.gpus) == 1 else f"{len(node.gpus)} GPUs"
    words = f"{number}: {', '.join(parts)}" if parts else "no GPUs"
    sick = sum(gpu.is_sick for gpu in node.gpus)
    return f"{words}; {sick} sick" if sick else words


def summary_words(found: Explanation) -> str:
    """The summary of an explanation, without the words that its verdict says already; it may be empty."""
    if found.verdict != "waits":
        return found.summary
    return found.summary.removeprefix("it waits").removeprefix(", and ")


def with_commands(text: str) -> Markup:
    """The text as HTML, escaped, with text between backticks as code."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(printable(text)))))  # noqa: S704 - escaped before
