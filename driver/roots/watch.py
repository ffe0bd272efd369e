"""Notices that the NVIDIA driver comes, goes or is replaced.

The kernel reports changes of mounts, and the rest is found by probing the places again and again.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

from driver.process.service import Service
from driver.roots.driver_roots import DriverRoots

# Nothing reports an installer that writes files into folders that do not exist yet, nor the kernel module or
# its version. A probe is some hundred system calls, which is cheap enough for each second.
MISSING_SECONDS = 1.0
"""How often the places are probed while no driver is there."""

SETTLE_SECONDS = 0.5
"""How long further mounts are ignored after one. Each pod that starts on the node makes some."""

MOUNTS = Path("/proc/self/mountinfo")


class RootWatch:
    """Calls ``changed`` whenever the driver has come, gone or been replaced.

    While a driver is there and no mount changes, the places are probed every ``every_seconds``.
    """

    def __init__(self, roots: DriverRoots, changed: Callable[[], None], every_seconds: float) -> None:
        self._roots = roots
        self._changed = changed
        self._every_seconds = every_seconds
        self._before = roots.state()
        # Closing the writing end wakes poll() with POLLHUP, which no timeout delays.
        self._wake, self._woken = os.pipe()

    def run(self) -> None:
        """Watch until ``stop``."""
        try:
            # Unbuffered, and never read: only the descriptor is polled.
            with MOUNTS.open("rb", buffering=0) as mounts:
                poll = select.poll()
                poll.register(self._wake, select.POLLIN)
                # The kernel wakes whoever polls mountinfo when a mount changes (proc(5)), with POLLPRI and
                # POLLERR, also for mounts that the host propagates into this container: a driver container's
                # root, or a system extension.
                poll.register(mounts, select.POLLPRI)
                while not self._stopped(poll, self._wait_seconds()):
                    self.look()
                    if self._stopped_within(SETTLE_SECONDS):
                        return
        finally:
            os.close(self._wake)

    def look(self) -> None:
        """Probe once."""
        self._roots.look()
        now = self._roots.state()
        if now != self._before:
            self._before = now
            self._changed()

    def stop(self) -> None:
        """Make ``run`` return."""
        os.close(self._woken)

    def _wait_seconds(self) -> float:
        root, _ = self._before
        return min(MISSING_SECONDS, self._every_seconds) if root is None else self._every_seconds

    def _stopped(self, poll: select.poll, seconds: float) -> bool:
        return any(descriptor == self._wake for descriptor, _ in poll.poll(seconds * 1000))

    def _stopped_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def watch_roots(
    service: Service, roots: DriverRoots, every_seconds: float, *changed: Callable[[], object]
) -> None:
    """Probe for the driver now, and go on in a thread of the service. Does nothing with a root from a flag.

    The functions are called in their order whenever the driver has come, gone or been replaced.
    """
    if roots.host_root is None:
        return
    roots.look()

    def tell() -> None:
        for one in changed:
            one()

    watch = RootWatch(roots, tell, every_seconds)
    service.spawn("driver root", watch.run, watch.stop)
