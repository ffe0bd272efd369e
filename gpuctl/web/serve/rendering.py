"""Makes HTML of a view: whole pages, and parts of pages, each with a mark that changes with it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from gpuctl.cli.output import printable
from gpuctl.explain.findings import Explanation
from gpuctl.fleet.devices import meaning
from gpuctl.fleet.gpus import GpuState, Use
from gpuctl.fleet.nodes import NodeView
from gpuctl.web.seen.view import Sick, View, node_detail
from gpuctl.web.serve.query import LINES_PER_PAGE, Query, chosen
from gpuctl.web.watch.answers import Answer

FOLDER = Path(__file__).resolve().parents[1]
_MOST_KEPT = 64
_MOST_ROWS = 4000

Asked = Callable[[str], Answer | None]

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
_COMMAND = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a page, and a mark that changes with it."""

    html: Markup
    mark: str


Parts = Mapping[str, Part]


class Renderer:
    """Renders pages of a view; what several browsers look at is rendered once. Not thread-safe."""

    def __init__(self, title: str, known: Asked, ask: Asked) -> None:
        """``title`` names the cluster; ``known`` gives the answer about a pod, ``ask`` also renews it."""
        self._known = known
        self._ask = ask
        self._rows: OrderedDict[str, tuple[NodeView, Markup]] = OrderedDict()
        self._kept: OrderedDict[tuple[object, ...], Parts] = OrderedDict()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(FOLDER / "templates"),
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
            meaning=lambda taint: with_commands(meaning(taint)),
            use_words=USE_WORDS,
            gpu_words=gpu_words,
            use_of=use_of,
            node_words=node_words,
            summary_words=summary_words,
            percent=percent,
            node_link=node_link,
            pod_link=pod_link,
            node_row=self._row,
        )

    def page(self, name: str, parts: Parts, /, **values: Any) -> str:
        """A whole page with these parts in it."""
        return self._templates.get_template(f"{name}.html").render(parts=parts, **values)

    def overview(self, view: View, answers: int, query: Query) -> Parts:
        """The parts of the first page; ``answers`` is the version of explain's answers."""
        return self._once(("overview", view.version, answers, query), lambda: self._overview(view, query))

    def _overview(self, view: View, query: Query) -> Parts:
        waiting = query.page("waiting_page", view.waiting)
        values: dict[str, dict[str, Any]] = {
            "summary": {},
            "sick": {"found": query.page("sick_page", (*view.sick, *self._failing(view)))},
            "waiting": {
                "found": waiting,
                "answers": {pod.key: self._known(pod.key) for pod in waiting.items},
            },
            "tiers": {},
            "nodes": {"found": query.page("page", chosen(view, query))},
            "history": {"changes": view.history[:LINES_PER_PAGE], "all": False},
        }
        return {name: self._part(name, view=view, query=query, **more) for name, more in values.items()}

    def _failing(self, view: View) -> Iterator[Sick]:
        """The pods that cannot start on their node, as explain says."""
        for pod in view.waiting:
            told = (self._known(pod.key) if pod.node else None) or Answer("", 0, 0.0, None)
            if told.explanation is not None and told.explanation.verdict == "fails":
                why = "; ".join(one.message for one in told.explanation.findings)
                yield Sick(pod.node or "", f"pod {pod.key}", f"it cannot start: {why}", since=pod.since)

    def history(self, view: View, query: Query) -> Parts:
        """All changes of the last hour, in pages."""
        found = query.page("history_page", view.history)
        return {
            "history": self._part(
                "history", view=view, query=query, changes=found.items, found=found, all=True
            )
        }

    def node(self, view: View, name: str) -> Parts:
        """A node in full, or that it publishes nothing. It is rendered again when the node has changed."""
        changes = tuple(one for one in view.history if (one.kind, one.about) == ("node", name))
        return self._once(
            ("node", name, view.nodes.get(name), changes), lambda: self._node(view, name, changes)
        )

    def _node(self, view: View, name: str, changes: tuple[Any, ...]) -> Parts:
        part = self._part("node", view=view, detail=node_detail(view, name), name=name, changes=changes)
        return {"node": part}

    def pod(self, view: View, key: str) -> Parts:
        """Explain's answer about a pod that waits, or that it no longer waits."""
        pod = next((one for one in view.waiting if one.key == key), None)
        answer = self._ask(key) if pod else None
        return {"pod": self._part("pod", view=view, pod=pod, key=key, answer=answer)}

    def _part(self, name: str, /, **values: Any) -> Part:
        html = self._made(f"parts/{name}.html", **values)
        return Part(html, hashlib.blake2b(html.encode(), digest_size=8).hexdigest())

    def _row(self, node: NodeView) -> Markup:
        """The row of a node, which is rendered again when the node has changed."""
        known = self._rows.get(node.name)
        if known is None or known[0] is not node:
            known = self._rows[node.name] = (node, self._made("parts/node_row.html", node=node))
            if len(self._rows) > _MOST_ROWS:
                self._rows.popitem(last=False)
        return known[1]

    def _made(self, template: str, /, **values: Any) -> Markup:
        """What a template makes: HTML, since all values in it are escaped."""
        return Markup(self._templates.get_template(template).render(**values))  # noqa: S704

    def _once(self, key: tuple[object, ...], make: Callable[[], Parts]) -> Parts:
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


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
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before
