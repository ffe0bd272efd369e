"""What a page shows is compared with what was printed, but for what it leaves out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.scenarios.comparing import matches

WORDS = st.text(alphabet="ab \t", max_size=8)
LINES = st.lists(WORDS, max_size=6)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a  b", "a\t b   "),
        ("a…", "a"),
        ("a\n…\nb", "a\n1\n2\nb"),
        ("…\na\n…\na", "a\na"),
        ("…\na\nb\n…\nc", "a\nx\na\nb\nc"),
        ("GPU 0: … (UUID: GPU-…)", "GPU 0: NVIDIA L4 (UUID: GPU-1)"),
        ("a…b…c", "abbcbc"),
        ("a\n\n…", "a\n"),
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
        (" a", "a"),
        ("a…b", "abc"),
        ("a…b…c", "abcd"),
        ("…\na\n…\na", "a"),
        ("a\n…\nb", "a\nb\nc"),
    ],
)
def test_anything_else_is_not(shown: str, printed: str) -> None:
    assert not matches(shown, printed)


@given(LINES, st.integers(0, 6))
def test_a_line_more_is_noticed(lines: list[str], at: int) -> None:
    assert not matches("\n".join(lines), "\n".join([*lines[:at], "more", *lines[at:]]))
