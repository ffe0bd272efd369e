"""A look is made when somebody asks, once a second at most, and nobody waits for long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from driver.process.fresh_reading import FreshReading
from tests.eventually import eventually
from tests.gpus import StorageError
from tests.running import running

FOUND = ("a", 1)


class Used:
    """What is looked at: it answers at once, or once the gate is open."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.failure: StorageError | None = None

    def __call__(self) -> tuple[str, int]:
        self.asked += 1
        self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return FOUND


Look = FreshReading[tuple[str, int]]
Start = Callable[..., Look]


@pytest.fixture
def used() -> Used:
    return Used()


@pytest.fixture
def start(used: Used) -> Iterator[Start]:
    """Starts a look; it ends with the test."""
    looks = ExitStack()

    def started(patience_seconds: float = 30.0, clock: Callable[[], float] = lambda: 0.0) -> Look:
        look = FreshReading("things", used, patience_seconds, clock)
        looks.enter_context(running(look.run, look.stop))
        return look

    yield started
    used.gate.set()
    looks.close()


def test_who_asks_within_a_second_gets_what_was_seen(start: Start, used: Used) -> None:
    now = 0.0
    look = start(clock=lambda: now)
    for seconds, looks in ((0.0, 1), (0.5, 1), (1.0, 1), (1.1, 2), (2.0, 2)):
        now = seconds
        assert look.now() == FOUND
        assert used.asked == looks, seconds


def test_many_who_ask_at_once_are_answered_by_one_look(start: Start, used: Used) -> None:
    used.gate.clear()
    look = start()
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(look.now())) for _ in range(8)]
    for thread in threads:
        thread.start()
    used.gate.set()
    for thread in threads:
        thread.join()

    assert answers == [FOUND] * 8
    assert used.asked == 1


def test_what_hangs_keeps_nobody_and_what_it_tells_late_is_not_lost(start: Start, used: Used) -> None:
    used.gate.clear()
    look = start(patience_seconds=0.01)

    assert look.now() is None
    assert look.now() is None
    assert used.asked == 1, "no second look beside the one that hangs"
    used.gate.set()
    eventually("it is found", look.now, lambda found: found == FOUND)


def test_what_cannot_be_told_is_not_known_and_is_asked_again(start: Start, used: Used) -> None:
    now = 0.0
    look = start(clock=lambda: now)
    used.failure = StorageError("the ledger cannot be read")
    assert look.now() is None

    used.failure, now = None, 2.0
    assert look.now() == FOUND


def test_after_the_end_nobody_waits(used: Used) -> None:
    look = FreshReading("things", used, 30.0)
    look.stop()
    look.run()
    assert look.now() is None
    assert used.asked == 0
