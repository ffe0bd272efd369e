"""Pictures are valid XML whatever words are in them, and the same calls give the same text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tools.svg.pictures import read_picture, words_of
from tools.svg.drawing import Drawing, fitted


def drawn(words: str) -> str:
    drawing = Drawing(100, words, words)
    drawing.box(1, 1, 10, 10, "free", hint=words)
    drawing.words(1, 20, words)
    drawing.curve("M0 0H9", "edge", width=2, hint=words)
    return drawing.text(50)


@given(st.text(max_size=40))
def test_any_words_make_a_valid_picture(words: str) -> None:
    read_picture(drawn(words.replace("http", "")))


def test_words_are_words_and_never_elements() -> None:
    hostile = "</text><script>alert(1)</script> & \" ' \x00\x1b[31m"

    root = read_picture(drawn(hostile))

    assert words_of(root) == ["</text><script>alert(1)</script> & \" ' [31m"]
    assert not [one for one in root.iter() if "script" in one.tag]


def test_what_is_too_long_ends_in_an_ellipsis() -> None:
    assert fitted("abc", 100) == "abc"
    assert fitted("abcdefghijklmnop", 73) == "abcdefghi…"
    assert fitted("abcdef", 10) == ""
    assert len(fitted("a" * 99, 73, small=True)) == 11
    assert len(fitted("a" * 99, 73, bold=True)) == 8


def test_the_same_calls_give_the_same_text() -> None:
    assert drawn("x") == drawn("x")
