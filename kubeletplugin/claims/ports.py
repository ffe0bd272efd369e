"""What the parts that work on claims need from outside and report there, and how they count their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from driver.devices.node_state import NodeState
from driver.errors import DriverError
from driver.process.metrics.registry import Phase
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.kubelet.wire.claim_call import ClaimRef
from kubeletplugin.kubelet.wire.health_board import HealthBoard
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.reports.published import PublishedDevices
from kubeletplugin.sharing.memory.claim_memory import ClaimMemory
from kubeletplugin.sharing.memory.one_gpu import Listed


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
class Cluster:
    """What the parts need from the API server and the kubelet, and how they report to the user of a claim."""

    # Returns the claim with this namespace and name. Raises ApiError, and ClaimRefused if there is none.
    get_claim: Callable[[str, str], dict[str, Any]]
    published: PublishedDevices
    # Returns the CDI device names that containers have; raises DriverError.
    in_use: Callable[[], frozenset[str]]
    # Returns the ids of NVIDIA's devices that containers have from device plugins; raises DriverError.
    given_by_device_plugins: Callable[[], frozenset[str]]
    # Reports that a claim waits.
    complain: Callable[[ClaimRef, DriverError], None]
    # Reports what a claim does not get.
    note: Callable[[ClaimRef, str], None]
    # Returns the containers that the kubelet lists, by CDI device; raises DriverError.
    containers: Callable[[], Listed] = dict

    def uses(self, entry: Entry) -> bool:
        """Whether the kubelet lists a container with a device of the claim; raises DriverError."""
        used = self.in_use()
        # Claims that were taken over: before 25.12, NVIDIA's driver named the CDI device as the published
        # device.
        names = {name for one in entry.devices for name in (one.cdi_device, one.published_as) if name}
        return not names.isdisjoint(used)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for events."""

    # Gets each prepared claim.
    prepared: Callable[[Entry], None]
    # Gets each new state of the node.
    state: Callable[[NodeState], None]
    # Gets the health of devices.
    board: HealthBoard
    # Called after each step of a claim, for tests.
    step: Callable[[str], None] = lambda _step: None
    # Measures the steps.
    timing: Timing = NO_TIMING


@dataclass(frozen=True, slots=True)
class Ports:
    """What the preparer needs of other parts."""

    cluster: Cluster
    listeners: Listeners
    watch: NodeWatch
    memory: ClaimMemory
    # Releases a claim if nobody needs it any more, and returns whether it did.
    release_unneeded: Callable[[str], bool]
