"""Says how many examples a property test runs through, in proportion to the profile of the run."""

from __future__ import annotations

from hypothesis import settings

LONG = 100
"""What a test without a number of its own runs through in the long profile."""


def examples(number: int) -> int:
    """As many in the long profile, in shorter ones the same part of it as of all other tests."""
    return max(1, number * settings().max_examples // LONG)
