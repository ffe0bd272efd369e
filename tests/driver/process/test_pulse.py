"""Work that takes longer than it ever should is noticed, and waiting is no work."""

import pytest

from driver.nvml.deadline import DEADLINE_SECONDS, LONG_FACTOR
from driver.process.pulse import HUNG_SECONDS
from tests.clock import Clock
from tests.clusters import Pulse


def test_work_that_takes_too_long_is_named_with_its_time() -> None:
    clock = Clock()
    pulse = Pulse(10.0, clock)

    with pulse.work("look"):
        clock.now = 9.0
        with pulse.work("write"):
            clock.now = 15.0
            assert pulse.hung() == "look has been running for 15 s"
            clock.now = 20.0
            assert pulse.hung() == "look has been running for 20 s; write has been running for 11 s"

    assert pulse.hung() == ""


def test_work_that_fails_has_ended() -> None:
    clock = Clock()
    pulse = Pulse(10.0, clock)

    with pytest.raises(ValueError, match="no"), pulse.work("look"):
        raise ValueError("no")
    clock.now = 100.0

    assert pulse.hung() == ""


def test_the_first_look_at_sixteen_gpus_that_all_hang_is_no_work_that_hangs() -> None:
    lanes = 16 + 1  # one for each GPU, and the node's

    assert lanes * LONG_FACTOR * DEADLINE_SECONDS < HUNG_SECONDS
