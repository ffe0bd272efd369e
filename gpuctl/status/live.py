"""Shows the cluster on a terminal and draws it again when something has changed, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from driver.kube.client import KubeClient
from gpuctl.cli.cluster import ClusterView
from gpuctl.cli.output import PrintablePicture
from gpuctl.fleet.cluster import Fleet
from gpuctl.fleet.follow import ClusterWatch, watch_error_text
from gpuctl.fleet.nodes import NodeView
from gpuctl.fleet.seen import Seen
from gpuctl.status.live_picture import live_picture

_LEAST_SECONDS = 0.3
"""Between two pictures; what changes meanwhile is drawn together."""


def watch_live(
    client: KubeClient,
    console: Console,
    view: ClusterView,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[NodeView, ...]:
    """Draw until Ctrl-C; returns the nodes as they were shown last.

    A picture is drawn when the API server reports a change, or when the terminal changes its size. Raises
    ApiError if the first reading fails.
    """
    # Also the answer to a wrong kubeconfig, in a line of its own, before the screen is taken.
    fleet = Fleet()
    first = Seen.read(view)
    views = fleet.read(first.slices, first.claims)
    problems = first.told(views)
    drawn: object = None
    drawn_at = clock() - _LEAST_SECONDS
    with ClusterWatch(client) as followed, _waking_signals(followed.wake):
        followed.wake()  # so that the first picture does not wait for a change
        # The terminal's alternate screen: what was there before comes back at the end.
        with Live(Text(), console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    broken = followed.wait()
                    pause(max(0.0, _LEAST_SECONDS - (clock() - drawn_at)))
                    broken += followed.drained()
                    seen = followed.snapshot()
                    if seen is not None:
                        views = fleet.read(seen.slices, seen.claims)
                        problems = seen.told(views)
                    size = console.size = _size(console)
                    note = watch_error_text(broken[-1]) if broken else ""
                    picture = live_picture(views, size.width, size.height, note, problems)
                    if (picture, size) != drawn:
                        live.update(PrintablePicture(picture), refresh=True)
                        drawn, drawn_at = (picture, size), clock()
            except KeyboardInterrupt:
                return views


def _size(console: Console) -> ConsoleDimensions:
    """The size of the terminal as it is now."""
    try:
        # rich trusts COLUMNS and LINES of the environment, which may be out of date.
        return ConsoleDimensions(*os.get_terminal_size(console.file.fileno()))
    except (OSError, ValueError):
        return console.size


@contextmanager
def _waking_signals(wake: Callable[[], None]) -> Iterator[None]:
    """Call ``wake`` when the terminal changes its size, and when Ctrl-C is pressed."""
    # Python runs a signal handler in the main thread, between two instructions. A signal that comes just
    # before that thread waits in C would be handled after the wait. So the interpreter's own handler, which
    # runs at once, writes to a socket, and another thread ends the wait.
    receiver, sender = socket.socketpair()
    sender.setblocking(False)  # noqa: FBT003 - set_wakeup_fd takes no other

    def listen() -> None:
        while receiver.recv(64):
            wake()

    listening = threading.Thread(target=listen, name="signals")
    listening.start()
    wakes = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    # Without a handler in Python, SIGWINCH is ignored, and the interpreter writes nothing.
    before = signal.signal(signal.SIGWINCH, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        signal.set_wakeup_fd(wakes)
        sender.close()  # recv returns nothing, and the thread ends
        listening.join()
        receiver.close()
