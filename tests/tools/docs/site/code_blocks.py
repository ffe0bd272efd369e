"""The fenced blocks of the repository's Markdown, and what the parts of objects in them belong to."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from markdown_it import MarkdownIt

from tests.clusters import Object
from tests.tools.docs.site.markdown_files import markdown_files
from tools.docs.site.places import ROOT

FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
LEFT_OUT = "…"
"""A line that is this alone stands for lines that a block leaves out."""

CLAIM_PARTS = ("requests", "constraints", "config")
REQUEST_PARTS = ("deviceClassName", "selectors", "capacity")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it is, its language, and its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def documents(self) -> list[Any]:
        """What the YAML of the block says; raises yaml.YAMLError."""
        lines = [line for line in self.text.split("\n") if line.strip() != LEFT_OUT]
        return [one for one in yaml.safe_load_all("\n".join(lines)) if one is not None]


@cache
def blocks() -> tuple[Block, ...]:
    """All fenced blocks."""
    return tuple(_fenced())


def _fenced() -> Iterator[Block]:
    for page in markdown_files():
        text = (ROOT / page).read_text()
        front = FRONT_MATTER.match(text)
        before = text.count("\n", 0, front.end()) if front else 0
        for token in MarkdownIt("commonmark").parse(text[front.end() :] if front else text):
            if token.type == "fence" and token.map:
                language = (token.info.split() or [""])[0]
                yield Block(page, before + token.map[0] + 1, language, token.content)


def is_executed(page: str) -> bool:
    """Whether the page is a scenario: its runner says that its YAML is that of files, which have tests."""
    front = FRONT_MATTER.match((ROOT / page).read_text())
    return page.startswith("deploy/scenarios/") or (front is not None and "scenario:" in front[1])


def is_object(document: Any) -> bool:
    """Whether it is a whole object of the API."""
    return isinstance(document, dict) and {"apiVersion", "kind", "metadata"} <= set(document)


def as_claim(document: Mapping[str, Any]) -> Object | None:
    """The claim that a part of one belongs to; None for a document that is no part of a claim."""
    if set(document) <= set(REQUEST_PARTS):
        document = {"requests": [{"name": "any", "exactly": {"deviceClassName": "any", **document}}]}
    devices = document["devices"] if set(document) == {"devices"} else document
    if not set(devices) <= set(CLAIM_PARTS):
        return None
    named = {name for entry in devices.get("config", ()) for name in entry.get("requests", ())} or {"any"}
    requests = [{"name": name, "exactly": {"deviceClassName": "any"}} for name in sorted(named)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "part"},
        "spec": {"devices": {"requests": requests, **devices}},
    }


def opaque_documents(document: Any) -> Iterator[Any]:
    """The opaque configurations of this driver in an object."""
    if isinstance(document, dict):
        if document.get("driver") == "gpu.nvidia.com" and "parameters" in document:
            yield document["parameters"]
        for value in document.values():
            yield from opaque_documents(value)
    elif isinstance(document, list):
        for value in document:
            yield from opaque_documents(value)
