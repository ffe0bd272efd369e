"""What a page shows is compared with what was printed, but for what it leaves out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.scenarios.comparing import matches

WORDS = st.text(alphabet="ab \t", max_size=8)
LINES = st.lists(WORDS, max_size=6)


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("a  b", "a\t b   ", True),
        ("a…", "a", True),
        ("a\n…\nb", "a\n1\n2\nb", True),
        ("…\na\n…\na", "a\na", True),
        ("…\na\nb\n…\nc", "a\nx\na\nb\nc", True),
        ("GPU 0: … (UUID: GPU-…)", "GPU 0: NVIDIA L4 (UUID: GPU-1)", True),
        ("a…b…c", "abbcbc", True),
        ("a\n\n…", "a\n", True),
        ("", "a", False),
        ("a", "", False),
        ("a", "a\nb", False),
        ("a\nb", "a", False),
        (" a", "a", False),
        ("a…b", "abc", False),
        ("a…b…c", "abcd", False),
        ("…\na\n…\na", "a", False),
        ("a\n…\nb", "a\nb\nc", False),
    ],
)
def test_what_is_shown_is_what_was_printed_and_nothing_else(shown: str, printed: str, is_same: bool) -> None:
    assert matches(shown, printed) is is_same


@given(LINES, st.integers(0, 6))
def test_a_line_more_is_noticed(lines: list[str], at: int) -> None:
    assert not matches("\n".join(lines), "\n".join([*lines[:at], "more", *lines[at:]]))
