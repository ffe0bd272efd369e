"""What the preparer of claims needs from other parts of the plugin, and how it counts its own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from driver.errors import DriverError
from driver.process.metrics.registry import Phase
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.devices.kinds.kind import HardwareNow
from kubeletplugin.kubelet.wire.claim_call import ClaimRef


def _ignore(*_measured: object) -> None:
    """For a port that nobody uses."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Callbacks that get durations in seconds: of phases, of journal writes, of writes of a claim's files."""

    phase: Callable[[Phase, float], None] = _ignore
    journal: Callable[[float], None] = _ignore
    files: Callable[[float], None] = _ignore

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Measure the block as a phase, even if it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phase(phase, time.perf_counter() - started)

    def waited(self, seconds: float) -> None:
        """Report a wait for locks."""
        self.phase("locks", seconds)


NO_TIMING = Timing()


@dataclass(frozen=True, slots=True)
class Ports:
    """Functions of other parts of the plugin that the preparer calls.

    ``get_claim(namespace, name)`` returns the API object. It raises ApiError, and ClaimRefused if there is no
    such claim. ``published_uuid(device)`` is the GPU UUID in this node's ResourceSlice, None if unknown.
    ``hardware_now()`` makes a ``HardwareNow``, which calls NVML at most once for each value.
    ``complain(claim, error)`` tells the user, once, that a call waits. ``note(claim, text)`` tells the user
    what the hardware does not do for a claim that is prepared all the same.

    ``prepared(entry)`` is called when a claim is ready. ``left_behind(uid)`` is called when not all of a
    claim could be taken back. ``releasing(uid)`` is a context manager around taking it back.
    ``release_unneeded(uid)`` releases a claim if nobody needs it any more, and returns whether it did.
    ``is_used(entry)`` returns whether a container has devices of the claim; it raises DriverError.
    ``forget_memory(uid)`` forgets the memory limits of a claim's containers once there are none; it raises
    StorageError. Tests follow the work by ``step(name)``. ``timing`` counts how long phases took.
    """

    get_claim: Callable[[str, str], dict[str, Any]]
    published_uuid: Callable[[str], str | None]
    hardware_now: Callable[[], HardwareNow]
    complain: Callable[[ClaimRef, DriverError], None]
    note: Callable[[ClaimRef, str], None]
    prepared: Callable[[Entry], None]
    left_behind: Callable[[str], None]
    releasing: Callable[[str], AbstractContextManager[None]]
    release_unneeded: Callable[[str], bool]
    is_used: Callable[[Entry], bool]
    forget_memory: Callable[[str], None]
    step: Callable[[str], None]
    timing: Timing = NO_TIMING
