"""Markdown as GitHub reads it looks the same after it was written for Python-Markdown."""

from __future__ import annotations

import pytest
from markdown import markdown
from markdown_it import MarkdownIt

from tests.tools.docs.site.rendered import seen
from tools.docs.site.dialect import as_python_markdown

LIST_AFTER_PROSE = "Prose:\n- one\n- two\n"
LIST_IN_A_LIST = "1. one\n   - two\n     - three\n2. four\n"
LIST_THAT_BEGINS_LATE = "6. six\n7. seven\n"
CODE_IN_A_LIST = "1. one\n\n   ```sh\n   echo one\n     two\n   ```\n2. two\n3. three\n"
CODE_WITH_WORDS = "Prose:\n```sh exits=3\nfalse\n```\nMore.\n"
TABLE_AFTER_PROSE = "Prose:\n| a | b |\n|---|---|\n| `x \\| y` | c |\n"
TABLE_IN_A_LIST = "- one\n\n  | a | b |\n  |---|---|\n  | c | d |\n- two\n"
QUOTE_AFTER_PROSE = "Prose:\n> said\n"
LOOSE_LIST = "- one\n\n- two\n\n  more of two\n\nAfter.\n"


@pytest.mark.parametrize(
    "text",
    [
        LIST_AFTER_PROSE,
        LIST_IN_A_LIST,
        LIST_THAT_BEGINS_LATE,
        CODE_IN_A_LIST,
        CODE_WITH_WORDS,
        TABLE_AFTER_PROSE,
        TABLE_IN_A_LIST,
        QUOTE_AFTER_PROSE,
        LOOSE_LIST,
    ],
)
def test_lists_code_and_tables_look_the_same(text: str) -> None:
    there = MarkdownIt("commonmark").enable("table").render(text)
    here = markdown(as_python_markdown(text), extensions=["tables", "pymdownx.superfences", "sane_lists"])
    assert seen(here) == seen(there)


def test_a_list_keeps_its_first_number() -> None:
    assert as_python_markdown(LIST_THAT_BEGINS_LATE).startswith("6.  six")


def test_only_the_language_of_code_is_kept() -> None:
    assert "```sh\nfalse\n```" in as_python_markdown(CODE_WITH_WORDS)


def test_prose_stays_as_it_is() -> None:
    text = "# A title\n\nProse with `code | more`.\n\nAnd *more*.\n"
    assert as_python_markdown(text) == text
