"""Work that takes longer than it ever should is noticed, and waiting is no work."""

from __future__ import annotations

import pytest

from driver.process.pulse import Pulse


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_work_within_its_time_and_work_that_has_ended_are_well() -> None:
    clock = Clock()
    pulse = Pulse(clock)

    with pulse.work("look", 10):
        clock.now = 10.0
        assert pulse.hung() == ""
    clock.now = 1000.0

    assert pulse.hung() == ""


def test_work_that_takes_too_long_is_named_with_its_time() -> None:
    clock = Clock()
    pulse = Pulse(clock)

    with pulse.work("look", 10), pulse.work("write", 100), pulse.work("look", 20):
        clock.now = 15.0
        assert pulse.hung() == "look is at work for 15 s"
        clock.now = 101.0
        assert pulse.hung() == (
            "look is at work for 101 s; write is at work for 101 s; look is at work for 101 s"
        )

    assert pulse.hung() == ""


def test_work_that_fails_has_ended() -> None:
    clock = Clock()
    pulse = Pulse(clock)

    with pytest.raises(ValueError, match="no"), pulse.work("look", 10):
        raise ValueError("no")
    clock.now = 100.0

    assert pulse.hung() == ""
