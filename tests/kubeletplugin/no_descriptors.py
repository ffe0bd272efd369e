"""A thread for which no file descriptor is left: it can use what is open, and open nothing more.

The limit of the process would be true to life, and would end the servers that run in it for other tests.
"""

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_OPENING = frozenset({"open", "os.listdir", "os.scandir"})
_here = threading.local()


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _OPENING and getattr(_here, "refuses", False):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), args[0] if args else None)


sys.addaudithook(_audit)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within the block each open of this thread fails with EMFILE."""
    _here.refuses = True
    try:
        yield
    finally:
        _here.refuses = False
