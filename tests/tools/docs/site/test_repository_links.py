"""Every link in the Markdown of the repository leads to a file, and to a heading where it names one."""

from __future__ import annotations

import pytest

from tests.tools.docs.site.markdown_files import markdown_files
from tools.docs.site.anchors import anchors, slug_of
from tools.docs.site.links import links
from tools.docs.site.places import ROOT, resolve


def broken(page: str, text: str) -> list[str]:
    """The links of a page that lead nowhere in the repository."""
    wrong = []
    for link in links(text):
        if link.leaves:
            continue
        place = ROOT / (resolve(page, link.path) if link.path else page)
        outside = not place.resolve().is_relative_to(ROOT)
        if outside or not place.exists() or (link.anchor and link.anchor not in anchors(place.read_text())):
            wrong.append(f"line {text.count(chr(10), 0, link.start) + 1}: {link.target}")
    return wrong


@pytest.mark.parametrize("page", markdown_files())
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(page, (ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    "link",
    [
        "nothing.md",
        "claims.md#nothing",
        "#nothing",
        "../../outside",
        "../nothing/",
        "claims.md#Asking-for-GPUs",
    ],
)
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert broken("docs/x.md", f"# Title\n\n[a]({link})\n") == [f"line 3: {link}"]


def test_headings_have_the_anchors_of_github() -> None:
    assert slug_of("What holds: memoryIsolation") == "what-holds-memoryisolation"
    assert slug_of("Try it: gpuctl demo (-o svg)") == "try-it-gpuctl-demo--o-svg"
    assert anchors("# A `b`\n\n## A b\n\n```\n# no\n```\n") == {"a-b", "a-b-1"}
