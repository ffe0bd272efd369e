"""Ends a command that runs a cluster in an orderly way, whichever signal ends it."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# An exception in one of these modules may come between the taking of a lock and the block that gives it back;
# then whoever needs the lock waits for ever. Such moments are short; blocking calls there may be interrupted.
_TAKE_LOCKS = frozenset({subprocess.__file__, threading.__file__})
_MOST_DELAYS = 20
_DELAY_SECONDS = 0.01


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

    delays = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal delays
        if frame is not None and frame.f_code.co_filename in _TAKE_LOCKS and delays < _MOST_DELAYS:
            delays += 1
            # Not threading.Thread, whose locks may be among those that are taken here.
            _thread.start_new_thread(_send_later, (number,))
            return
        ignore()
        signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, end) for number in handled}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _send_later(number: int) -> None:
    time.sleep(_DELAY_SECONDS)
    os.kill(os.getpid(), number)
