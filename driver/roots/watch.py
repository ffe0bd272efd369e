"""Notices that the NVIDIA driver comes, goes or is replaced.

The kernel reports mounts: it wakes a process that polls mountinfo (proc(5)), also for mounts that the host
passes on to this container, such as a driver container's root or a system extension. Nothing reports the
rest together: files that an installer writes into folders that are not there yet, the module, its version. So
while no driver is there the places are probed every second, some hundred system calls.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from pathlib import Path

from driver.process.service import Service
from driver.roots.driver_roots import DriverRoots

MISSING_SECONDS = 1.0
"""How often is looked while no driver is there."""

SETTLE_SECONDS = 0.5
"""How long no mount is answered after another: each pod that starts on the node has some."""

MOUNTS = Path("/proc/self/mountinfo")


class RootWatch:
    """Calls ``changed`` whenever another driver is there than before, or none any more.

    While a driver is there and no mount changes, the places are probed every ``every_seconds``.
    """

    def __init__(self, roots: DriverRoots, changed: Callable[[], None], every_seconds: float) -> None:
        self._roots = roots
        self._changed = changed
        self._every_seconds = every_seconds
        self._before = roots.state()
        self._wake, self._woken = os.pipe()

    def run(self) -> None:
        """Watch until ``stop``."""
        try:
            with MOUNTS.open("rb", buffering=0) as mounts:
                poll = select.poll()
                poll.register(self._wake, select.POLLIN)
                poll.register(mounts, select.POLLPRI)  # POLLERR comes unasked
                while not self._stopped(poll, self._wait_seconds()):
                    self.look()
                    if self._stopped_within(SETTLE_SECONDS):
                        return
        finally:
            os.close(self._wake)

    def look(self) -> None:
        """Look once."""
        self._roots.look()
        now = self._roots.state()
        if now != self._before:
            self._before = now
            self._changed()

    def stop(self) -> None:
        """Let ``run`` return."""
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
    """Probe for the driver now, and go on in a thread of the service where its root is probed.

    The functions are called in their order whenever another driver is there, or none any more.
    """
    if roots.host_root is None:
        return
    roots.look()

    def tell() -> None:
        for one in changed:
            one()

    watch = RootWatch(roots, tell, every_seconds)
    service.spawn("driver root", watch.run, watch.stop)
