"""Ends a command that runs a cluster in an orderly way, whichever signal ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_end_it_once() -> Iterator[Callable[[], None]]:
    """Let the first of SIGTERM, SIGHUP and Ctrl-C act as Ctrl-C, and no other one do anything.

    The block gets a function after whose call none of them does anything.
    """
    # A signal that is ignored from the start stays ignored: SIGHUP is below nohup.
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def ignore() -> None:
        for number in handled:
            # Not SIG_IGN: Python prints an error for a signal that came before and is handled only now.
            signal.signal(number, lambda _number, _frame: None)

    def end(number: int, frame: FrameType | None) -> None:
        ignore()
        signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
