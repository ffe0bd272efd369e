"""The scheduler's queue: who is tried, in which order, and who has to wait for the end of a back-off."""

from __future__ import annotations

from typing import Any

import pytest

from envtest.embedded.control.scheduling_queue import SchedulingQueue


def pod(name: str, priority: int = 0) -> dict[str, Any]:
    return {"metadata": {"uid": name}, "spec": {"priority": priority}}


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["uid"] for one in pods]


def test_higher_priority_comes_first_and_then_the_order_in_which_pods_came() -> None:
    queue = SchedulingQueue()
    old, new, high = pod("old"), pod("new"), pod("high", 100)

    assert names(queue.order([old], 0.0)) == ["old"]
    assert names(queue.order([old, new, high], 5.0)) == ["high", "old", "new"]


def test_a_pod_that_was_refused_goes_behind_those_that_were_not_until_its_back_off_is_over() -> None:
    queue = SchedulingQueue()
    refused, new = pod("refused", 100), pod("new")
    queue.order([refused], 100.0)
    queue.refuse(refused, 100.0)

    assert names(queue.order([refused, new], 100.5)) == ["new", "refused"]
    assert names(queue.order([refused, new], 101.0)) == ["refused", "new"]


def test_pods_whose_back_off_ends_in_the_same_second_go_by_priority() -> None:
    queue = SchedulingQueue()
    low, high, late = pod("low"), pod("high", 100), pod("late", 1000)
    for one, moment in ((low, 100.1), (high, 100.2), (late, 101.3)):
        queue.order([low, high, late], moment)
        queue.refuse(one, moment)

    assert names(queue.order([low, high, late], 101.05)) == ["high", "low", "late"]


@pytest.mark.parametrize(("refusals", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (9, 10)])
def test_the_back_off_doubles_with_each_refusal_up_to_ten_seconds(refusals: int, seconds: int) -> None:
    queue = SchedulingQueue()
    waits, other = pod("waits"), pod("other")
    moment = 0.0
    for _ in range(refusals):
        moment += 100
        queue.order([waits], moment)
        queue.refuse(waits, moment)

    assert names(queue.order([waits, other], moment + seconds - 0.1)) == ["other", "waits"]
    assert names(queue.order([waits, other], moment + seconds)) == ["waits", "other"]


def test_tries_within_the_back_off_do_not_make_it_longer() -> None:
    queue = SchedulingQueue()
    waits, other = pod("waits"), pod("other")
    for moment in (0.0, 0.1, 0.2, 0.3):
        queue.order([waits], moment)
        queue.refuse(waits, moment)

    assert names(queue.order([waits, other], 1.0)) == ["waits", "other"]


def test_after_an_error_a_pod_is_left_alone_until_its_back_off_is_over() -> None:
    queue = SchedulingQueue()
    erring, other = pod("erring"), pod("other")
    for moment, seconds in ((0.0, 1.0), (10.0, 2.0), (20.0, 4.0)):
        queue.order([erring, other], moment)
        queue.fail(erring, moment)
        assert names(queue.order([erring, other], moment + seconds - 0.1)) == ["other"]
        assert queue.seconds_to_next(moment) == pytest.approx(seconds)
    assert names(queue.order([erring, other], 24.0)) == ["other", "erring"]
    assert queue.seconds_to_next(24.0) is None  # who is tried and says nothing does not make the loop spin

    queue.refuse(erring, 24.0)
    assert queue.seconds_to_next(24.0) is None
    assert names(queue.order([erring, other], 24.1)) == ["other", "erring"]


def test_a_pod_that_waits_no_more_is_forgotten() -> None:
    queue = SchedulingQueue()
    gone = pod("gone")
    queue.order([gone], 0.0)
    queue.fail(gone, 0.0)
    queue.order([], 0.1)

    assert queue.seconds_to_next(0.1) is None
    assert names(queue.order([gone], 0.2)) == ["gone"]
