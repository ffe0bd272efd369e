"""What a page shows is compared with what was printed, but for what it leaves out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.scenarios.comparing import ANYTHING, difference, line_matches, lines_of, matches

WORDS = st.text(alphabet="ab \t", max_size=8)
LINES = st.lists(WORDS, max_size=6)
MORE = st.text(alphabet="xyz ", max_size=6)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", ""),
        ("a", "a\n"),
        ("a\n", "a"),
        ("a  b", "a\t b   "),
        ("a…", "a"),
        ("…", ""),
        ("…", "a\nb"),
        ("a\n…\nb", "a\nb"),
        ("a\n…\nb", "a\n1\n2\nb"),
        ("…\nb\n…", "1\nb\n2"),
        ("…\na\n…\na", "a\na"),
        ("…\na\nb\n…\nc", "a\nx\na\nb\nc"),
        ("  …\nb", "1\n2\nb"),
        ("GPU 0: … (UUID: GPU-…)", "GPU 0: NVIDIA L4 (UUID: GPU-1)"),
        ("a…b…c", "abbcbc"),
        ("a\n\n…", "a\n"),
        ("\n…\n\n…", "\n"),
    ],
)
def test_what_is_shown_is_what_was_printed(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", "a"),
        ("a", ""),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("a", "A"),
        ("ab", "a b"),
        (" a", "a"),
        ("a…a", "a"),
        ("a…b", "a\nb"),
        ("a…b", "abc"),
        ("a…b…c", "abcd"),
        ("a\n\nb", "a\nb"),
        ("…\na\n…\na", "a"),
        ("…\na\n…", "b"),
        ("a\n…\nb", "a\nb\nc"),
        ("a…b…c", "acb"),
        ("a…b…b", "ab"),
    ],
)
def test_anything_else_is_not(shown: str, printed: str) -> None:
    assert not matches(shown, printed)


@given(LINES)
def test_every_text_shows_itself(lines: list[str]) -> None:
    assert matches("\n".join(lines), "\n".join(lines))


@given(LINES, st.data())
def test_lines_may_be_left_out_anywhere(lines: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(lines)))
    end = data.draw(st.integers(begin, len(lines)))
    assert matches("\n".join([*lines[:begin], ANYTHING, *lines[end:]]), "\n".join(lines))


@given(LINES.filter(bool), MORE, st.data())
def test_a_part_of_a_line_may_be_left_out(lines: list[str], more: str, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, len(lines) - 1))
    cut = data.draw(st.integers(0, len(lines[chosen])))
    begin, end = lines[chosen][:cut].rstrip(), lines[chosen][cut:].lstrip()
    shown, printed = (
        [*lines[:chosen], f"{begin}{between}{end}", *lines[chosen + 1 :]] for between in (ANYTHING, more)
    )
    assert matches("\n".join(shown), "\n".join(printed))


@given(LINES, st.integers(0, 6))
def test_a_line_more_is_noticed(lines: list[str], at: int) -> None:
    assert not matches("\n".join(lines), "\n".join([*lines[:at], "more", *lines[at:]]))


@given(LINES, LINES)
def test_without_anything_left_out_it_is_a_comparison(shown: list[str], printed: list[str]) -> None:
    one, other = "\n".join(shown), "\n".join(printed)
    assert matches(one, other) == (lines_of(one) == lines_of(other))


@given(st.lists(WORDS, min_size=1, max_size=4), MORE)
def test_a_line_shows_what_has_its_parts_in_their_order(parts: list[str], more: str) -> None:
    assert line_matches(ANYTHING.join(parts), more.join(parts))


def test_the_difference_names_what_was_expected_and_what_came() -> None:
    told = difference("NAME …\none  ready\n", "NAME AGE\none failed\n")
    assert told.splitlines() == ["  NAME …", "- one ready", "+ one failed"]
