"""An operation's end is told in one of four words."""

from __future__ import annotations

import pytest

from driver.errors import ClaimBlocked, ClaimRefused, outcome_of


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (None, "ok"),
        (ClaimBlocked("x"), "retryable"),
        (ClaimRefused("x"), "permanent"),
        (KeyError("x"), "internal"),
    ],
)
def test_an_error_is_sorted_by_what_can_be_done(error: Exception | None, word: str) -> None:
    assert outcome_of(error) == word
