"""Waits for what a fake machine's driver tells of its GPUs, as a process does with an event set of NVML."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.nvml.api import NODE_CALLS, Code, GpuLost, SessionLost
from fakegpu.health.calls import FIRST_WITH_STRUCTURED_EVENTS, release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driver.nvml.health.calls import GpuEvent
    from driver.nvml.pci_address import PciAddress
    from fakegpu.machine.state import MachineState, StateStore
    from fakegpu.nvml.session import FakeSession

_WAIT = "wait_events"


class FakeEventSet:
    """The events of some GPUs, whose addresses and UUIDs are ``gpus``, from now on."""

    def __init__(self, session: FakeSession, store: StateStore, gpus: Mapping[PciAddress, str]) -> None:
        self._session = session
        self._number = session.number
        self._store = store
        self._gpus = dict(gpus)
        self._changes = store.changes()
        self._next = store.read().told.next_number
        self.is_closed = False

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs."""
        return frozenset(self._gpus.values())

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event; what was told before a GPU fell off the bus comes before that is told."""
        until = time.monotonic() + seconds
        while True:
            self._check_open()
            state = self._session.enter(_WAIT)
            self._check_open()
            event = self._next_event(state)
            if event is not None:
                return event
            self._check_gpus(state)
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._changes.wait(left)

    def close(self) -> None:
        """End it, and whoever waits."""
        self.is_closed = True
        self._changes.wake()

    def _next_event(self, state: MachineState) -> GpuEvent | None:
        missed = state.told.misses(self._next)
        found = state.told.since(self._next, frozenset(self._gpus))
        if not found:
            self._next = state.told.next_number
            return None
        self._next = found[0].number + 1
        # Only structured events tell that others were dropped; the old form loses them without a word.
        tells = missed and release(state.driver_version) >= FIRST_WITH_STRUCTURED_EVENTS
        return replace(found[0].event, dropped=True) if tells else found[0].event

    def _check_gpus(self, state: MachineState) -> None:
        for pci in self._gpus:
            gpu = state.gpus[pci]
            if gpu.lost or not gpu.present:
                raise GpuLost(NODE_CALLS[_WAIT], Code.GPU_IS_LOST, str(pci))

    def _check_open(self) -> None:
        """Raise SessionLost once the set is closed, or another session was begun since."""
        if self.is_closed or self._session.number != self._number:
            raise SessionLost(NODE_CALLS[_WAIT], Code.UNINITIALIZED)
