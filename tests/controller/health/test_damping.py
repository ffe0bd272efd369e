"""What comes back again and again has to be well for longer and longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.health.incident_store import FORGET_SECONDS, HOLD_SECONDS, Damping, held_seconds


def test_a_fault_that_lasts_is_no_return() -> None:
    damping = Damping()
    for now in range(100):
        damping.note_bad("gpu", float(now))
    assert damping.note_well("gpu", 101.0)


def test_what_was_well_for_an_hour_begins_anew() -> None:
    damping = Damping()
    for now in (0.0, 2.0, 4.0, 6.0):
        damping.note_bad("gpu", now)
        damping.note_well("gpu", now + 1)
    later = 8.0 + FORGET_SECONDS
    damping.note_bad("gpu", later)
    assert damping.note_well("gpu", later + 1)


@given(st.integers(0, 10_000))
def test_it_takes_longer_with_each_return_and_never_for_ever(returns: int) -> None:
    assert held_seconds(returns) <= held_seconds(returns + 1) <= HOLD_SECONDS[1]
