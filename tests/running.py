"""Something that runs in a thread of its own while a test looks at it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def running(run: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    """Run it inside the block; afterwards it is told to stop, and has to."""
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(30)
        assert not thread.is_alive()
