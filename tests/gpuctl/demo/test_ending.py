"""The first signal ends a command; those that come while it ends do nothing."""

import os
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from gpuctl.demo.ending import signals_end_it_once

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _heard() -> None:
    """Tests may have been started where Ctrl-C, or the end of a terminal, is ignored."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.mark.parametrize("number", ALL)
def test_the_first_signal_is_as_ctrl_c_and_the_next_are_not_heard(number: signal.Signals) -> None:
    ended = False
    before = {one: signal.getsignal(one) for one in ALL}
    with signals_end_it_once():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            for one in ALL:
                os.kill(os.getpid(), one)
            ended = True
    assert ended
    assert {one: signal.getsignal(one) for one in ALL} == before


class InterruptedLock:
    """A lock that gets a signal while it is taken."""

    acquire = release = __exit__ = lambda *_: None

    def __init__(self) -> None:
        # A function of C, so that the signal is seen in the function that takes the lock.
        self.__enter__: Callable[[], None] = partial(signal.raise_signal, signal.SIGTERM)


def test_a_signal_does_not_come_between_the_taking_of_a_lock_and_the_block_that_gives_it_back() -> None:
    taken = False
    lock = threading.Condition(InterruptedLock())  # type: ignore[arg-type]  # it has what is used of a lock
    with signals_end_it_once():
        try:
            with lock:
                taken = True
            while True:
                os.sched_yield()
        except KeyboardInterrupt:
            pass
    assert taken
