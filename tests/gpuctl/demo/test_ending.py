"""The first signal ends a command; those that come while it ends do nothing."""

from __future__ import annotations

import os
import signal

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


def test_none_is_heard_once_it_ends_by_itself() -> None:
    with signals_end_it_once() as ignore:
        ignore()
        for one in ALL:
            os.kill(os.getpid(), one)
