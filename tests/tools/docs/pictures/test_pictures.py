"""The pictures of the documentation are those that the code draws, can be read by anybody, and are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.svg.pictures import read_picture, words_of
from tools.docs.pictures.__main__ import FOLDER, KEPT, MEASURED, PICTURES, drawn, stale
from tools.docs.pictures.node_pictures import ROOT
from tools.docs.pictures.screenshots import SCREENSHOTS


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_valid_says_in_words_what_it_shows_and_is_drawn_alike_again(name: str) -> None:
    text = PICTURES[name]()

    root = read_picture(text)

    assert len(root[0].text or "") > 10
    assert len(root[1].text or "") > 60
    assert words_of(root) != []
    assert PICTURES[name]() == text


def test_the_files_are_as_they_are_drawn() -> None:
    assert stale(drawn()) == []


def test_a_picture_that_differs_or_is_missing_is_named(tmp_path: Path) -> None:
    same, other, missing = (tmp_path / name for name in ("same.svg", "other.svg", "missing.svg"))
    same.write_text("<svg/>")
    other.write_text("<svg>of before</svg>")

    assert stale(dict.fromkeys((same, other, missing), "<svg/>")) == [other, missing]


def test_every_file_in_the_folder_is_made_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PICTURES, *SCREENSHOTS, *MEASURED, *KEPT}


def test_every_picture_is_shown_on_a_page_with_words_in_its_place() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    shown = "\n".join(page.read_text() for page in pages)

    assert [
        name for name in (*PICTURES, *SCREENSHOTS, *MEASURED, *KEPT) if f"pictures/{name})" not in shown
    ] == []
    assert "![](" not in shown
