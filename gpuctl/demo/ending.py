"""Ends a command that runs a cluster in good order, whichever signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_end_it_once() -> Iterator[Callable[[], None]]:
    """The first of SIGTERM, SIGHUP and Ctrl-C acts as Ctrl-C does; after that, or after the call of what is
    given, none of them does anything: a second Ctrl-C must not keep the processes alive. What is ignored, as
    below nohup, stays so."""
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def ignore() -> None:
        for number in heard:
            # Not SIG_IGN: Python complains of a signal that came and was not handled yet when it is set.
            signal.signal(number, lambda _number, _frame: None)

    def end(number: int, frame: FrameType | None) -> None:
        ignore()
        signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
