"""How many examples a property test tries, in proportion to the profile of the run."""

from hypothesis import settings

LONG = 100
"""The number in the long profile for a test without a number of its own."""


def examples(number: int) -> int:
    """So many in the long profile; in other profiles scaled as for all other tests."""
    return max(1, number * settings().max_examples // LONG)


def all_examples(number: int) -> int:
    """So many in every profile, more in one that asks for more: safety is tried in full each time."""
    return max(number, examples(number))


def is_long() -> bool:
    """Whether this is the long profile, which tries all machines and steps."""
    return settings().max_examples >= LONG
