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
from gpuctl.fleet.follow import Followed, broke_off
from gpuctl.fleet.nodes import NodeView
from gpuctl.status.live_picture import live_picture

_LEAST_SECONDS = 0.3
"""Between two pictures: what changes meanwhile is drawn together."""


def watch_live(
    client: KubeClient,
    console: Console,
    view: ClusterView,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[NodeView, ...]:
    """Draw until Ctrl-C; the nodes as they were shown last.

    It fills the screen, and what was on it before comes back at the end. A picture is drawn when the API
    server reports a change, or when the terminal changes its size. Raises ApiError where the first reading
    fails.
    """
    state = Fleet()
    views = state.look(view.slices(), view.claims())
    drawn: object = None
    drawn_at = clock() - _LEAST_SECONDS
    with Followed(client) as followed, _signalled(followed.wake):
        followed.wake()
        with Live(Text(), console=console, screen=True, auto_refresh=False) as live:
            try:
                while True:
                    broken = followed.wait()
                    pause(max(0.0, _LEAST_SECONDS - (clock() - drawn_at)))
                    broken += followed.drained()
                    seen = followed.seen()
                    if seen is not None:
                        views = state.look(*seen)
                    size = console.size = _size(console)
                    note = broke_off(broken[-1]) if broken else ""
                    picture = live_picture(views, size.width, size.height, note)
                    if (picture, size) != drawn:
                        live.update(PrintablePicture(picture), refresh=True)
                        drawn, drawn_at = (picture, size), clock()
            except KeyboardInterrupt:
                return views


def _size(console: Console) -> ConsoleDimensions:
    """The size of the terminal as it is now; COLUMNS and LINES in the environment may be out of date."""
    try:
        return ConsoleDimensions(*os.get_terminal_size(console.file.fileno()))
    except (OSError, ValueError):
        return console.size


@contextmanager
def _signalled(heard: Callable[[], None]) -> Iterator[None]:
    """Call ``heard`` when the terminal changes its size, and when Ctrl-C is pressed.

    A handler in Python runs in the main thread alone, and not before that goes on: a signal that comes just
    before the thread waits would be heard after the wait. So the interpreter writes each to a socket at once.
    """
    heard_at, told = socket.socketpair()
    told.setblocking(False)  # noqa: FBT003 - as the interpreter asks for it

    def listen() -> None:
        while heard_at.recv(64):
            heard()

    listening = threading.Thread(target=listen, name="signals")
    listening.start()
    wakes = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    before = signal.signal(signal.SIGWINCH, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
        signal.set_wakeup_fd(wakes)
        told.close()
        listening.join()
        heard_at.close()
