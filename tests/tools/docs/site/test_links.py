"""Links of a Markdown text are found where they are links, and can be given other targets."""

from __future__ import annotations

import pytest

from tools.docs.site.links import links, retarget, without_code

PAGE = """\
See [claims](claims.md#what-the-status-tells), ![a picture](pictures/one.svg "held") and
[the `class`](../deviceclasses/gpu.yaml). `[no](link.md)`, <a href="here.html">here</a>.
```sh
echo [no](link.md)
```
<!-- [no](link.md) -->
- ~~~
  [no](link.md)
  ~~~
[defined]: https://example.com/a_(b)
"""


def test_links_pictures_and_definitions_are_found_and_code_is_not() -> None:
    assert [link.target for link in links(PAGE)] == [
        "claims.md#what-the-status-tells",
        "pictures/one.svg",
        "../deviceclasses/gpu.yaml",
        "here.html",
        "https://example.com/a_(b)",
    ]


def test_a_link_has_a_path_and_an_anchor() -> None:
    first = next(links(PAGE))
    assert (first.path, first.anchor, first.leaves) == ("claims.md", "what-the-status-tells", False)


@pytest.mark.parametrize("target", ["https://example.com", "mailto:somebody@example.com"])
def test_what_leads_out_of_the_repository_is_told(target: str) -> None:
    assert [link.leaves for link in links(f"[a]({target})")] == [True]


def test_only_targets_change() -> None:
    changed = retarget(PAGE, lambda _: "X")
    assert changed.count("X") == 5
    assert changed.count("[no](link.md)") == 4
    assert retarget(PAGE, lambda link: link.target) == PAGE


def test_what_is_no_code_stays_where_it_was() -> None:
    prose = without_code(PAGE)
    assert len(prose) == len(PAGE)
    assert prose.index("[claims]") == PAGE.index("[claims]")
    assert "link.md" not in prose
