"""Waiting times double up to a limit, are spread at random, and come on top of what the server asks for."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.kube.backoff import retry_until
from driver.kube.errors import TooManyRequests
from tests.clusters import Backoff, NotFound, Unreachable
from tests.driver.kube.stops import CountingStop


def test_the_time_doubles_up_to_the_limit_and_starts_over_after_a_success() -> None:
    backoff = Backoff(1.0, 5.0, jitter=lambda: 0.0)

    assert [backoff.next_seconds() for _ in range(4)] == [1, 2, 4, 5]
    backoff.reset()
    assert backoff.next_seconds() == 1


@given(st.floats(0, 1), st.integers(1, 12))
def test_the_jitter_takes_away_at_most_half(jitter: float, tries: int) -> None:
    exact, spread = Backoff(1.0, 30.0, jitter=lambda: 0.0), Backoff(1.0, 30.0, jitter=lambda: jitter)
    for _ in range(tries):
        full, seconds = exact.next_seconds(), spread.next_seconds()

        assert full / 2 <= seconds <= full


@pytest.mark.parametrize("kind", [TooManyRequests, Unreachable])
def test_what_the_server_asks_for_is_waited_before_the_own_time(
    kind: type[TooManyRequests | Unreachable],
) -> None:
    backoff = Backoff(1.0, 8.0, jitter=lambda: 0.0)

    assert backoff.next_seconds(kind("busy", retry_after_seconds=60)) == 60 + 1
    assert backoff.next_seconds(kind("busy", retry_after_seconds=0.5)) == 0.5 + 2
    assert backoff.next_seconds(kind("busy")) == 4


@pytest.mark.parametrize("asked", [61.0, 86400.0, 1e11, float("inf")])
def test_the_server_cannot_ask_for_more_than_a_minute(asked: float) -> None:
    backoff = Backoff(1.0, 8.0, jitter=lambda: 0.0)

    assert backoff.next_seconds(TooManyRequests("busy", retry_after_seconds=asked)) == 60 + 1


class Failing:
    """Raises the errors in turn, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_a_call_is_repeated_while_its_error_can_pass() -> None:
    call, stop = (
        Failing(Unreachable("away"), TooManyRequests("busy", retry_after_seconds=9)),
        CountingStop(99),
    )
    backoff = Backoff(1.0, 8.0, jitter=lambda: 0.0)

    assert retry_until(call, deadline=None, stop=stop, backoff=backoff) == "answer"
    assert stop.waits == [1, 9 + 2]


@pytest.mark.parametrize(
    ("errors", "left_seconds", "stop", "calls"),
    [
        ([NotFound("nobody")], None, CountingStop(99), 1),
        ([Unreachable("away", retry_after_seconds=3600)], 60, CountingStop(99), 1),
        ([Unreachable("away")] * 99, None, CountingStop(3), 3),
    ],
    ids=["a permanent error", "the wait is longer than the deadline", "a stop"],
)
def test_it_is_not_repeated_for_ever(
    errors: list[Exception], left_seconds: float | None, stop: CountingStop, calls: int
) -> None:
    call = Failing(*errors)
    deadline = None if left_seconds is None else time.monotonic() + left_seconds

    with pytest.raises(type(errors[0])):
        retry_until(call, deadline=deadline, stop=stop)
    assert call.calls == calls
