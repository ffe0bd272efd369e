"""Tables are written into the places of a page, and nothing else of it changes."""

from __future__ import annotations

import pytest

from tools.docs.lookup.marked import code, names, renewed, table

PAGE = "# A\n<!-- some words: made by python -m tools.docs.lookup -->\nold\n<!-- until here -->\nB\n"


def test_what_stands_between_the_marks_is_replaced() -> None:
    page = renewed(PAGE, {"some words": lambda: "| new |\n"})
    assert page == (
        "# A\n<!-- some words: made by python -m tools.docs.lookup -->\n\n| new |\n\n<!-- until here -->\nB\n"
    )
    assert renewed(page, {"some words": lambda: "| new |\n"}) == page


def test_a_place_for_which_nothing_is_made_is_refused() -> None:
    with pytest.raises(ValueError, match="some words"):
        renewed(PAGE, {})


def test_the_places_of_a_page_are_told() -> None:
    assert names(PAGE + PAGE) == ["some words", "some words"]


def test_a_cell_holds_what_would_end_it() -> None:
    assert table(("a", "b"), [("x|y\n z", code("<p|q>")), ("<driver>", "")]) == (
        "| a | b |\n| --- | --- |\n| x\\|y z | `<p\\|q>` |\n| &lt;driver> | |\n"
    )
