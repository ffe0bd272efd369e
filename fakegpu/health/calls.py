"""What the NVML of a fake machine says of the health of GPUs: answers to calls, and events."""

# ruff: noqa: D102 - the protocol of driver.nvml.health.calls documents the calls
from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import get_args

from driver.nvml.api import NODE_CALLS, Code, GpuLost, SessionLost
from driver.nvml.health.calls import (
    EccErrors,
    EventKind,
    FabricHealth,
    GpuEvent,
    RecoveryAction,
    RemappedRows,
)
from driver.nvml.pci_address import PciAddress
from fakegpu.health.state import GpuHealth
from fakegpu.machine.state import GpuState, MachineState, StateStore
from fakegpu.nvml.session import FakeSession, GpuHandle

FIRST_WITH_STRUCTURED_EVENTS = 615
"""The first release of the NVIDIA driver that reports severity, containment and unrepairable memory."""

_FIRST_WITH_RECOVERY_ACTION = 570
# These retire whole pages with defective memory; from Ampere on the hardware replaces rows.
_RETIRES_PAGES = ("Volta", "Turing")
_REPORTS_UNREPAIRABLE = ("Hopper", "Blackwell")

_WAIT = "wait_events"
_EVERY_KIND: frozenset[EventKind] = frozenset(get_args(EventKind))


def release(driver_version: str) -> int:
    """The release that a version of the NVIDIA driver belongs to: 580 for 580.95.05."""
    return int(driver_version.partition(".")[0])


class FakeHealthCalls(GpuHandle):
    """What FakeDevice answers about health."""

    def recovery_action(self) -> RecoveryAction | None:
        state, _ = self._enter("recovery_action")
        # It is a field that NVML is asked for by number, so an old driver knows the call but not the field.
        if release(state.driver_version) < _FIRST_WITH_RECOVERY_ACTION:
            raise self._failure("recovery_action", Code.NOT_SUPPORTED)
        return self._health("recovery_action").recovery_action

    def remapped_rows(self) -> RemappedRows:
        health = self._health("remapped_rows")
        if self._spec.product.architecture in _RETIRES_PAGES:
            raise self._failure("remapped_rows", Code.NOT_SUPPORTED)
        return health.rows

    def retired_pages_pending(self) -> bool:
        return self._health("retired_pages_pending", architectures=_RETIRES_PAGES).page_pending

    def unrepairable_memory(self) -> bool:
        return self._health(
            "unrepairable_memory", architectures=_REPORTS_UNREPAIRABLE, since=FIRST_WITH_STRUCTURED_EVENTS
        ).unrepairable

    def ecc_errors(self) -> EccErrors:
        return self._health("ecc_errors").ecc

    def fabric_health(self) -> FabricHealth:
        health = self._health("fabric_health")
        if self._spec.fabric is None or self._spec.fabric.state != "completed":
            raise self._failure("fabric_health", Code.NOT_SUPPORTED)
        return health.fabric

    def links_up(self) -> tuple[bool, ...]:
        """Whether each NVLink is up, by its number; MIG mode ends some."""
        state, gpu = self._enter("nvlinks")
        if not self._slot.links:
            raise self._failure("nvlinks", Code.NOT_SUPPORTED)
        ended = self._links_ended_by_mig(state, gpu)
        return tuple(link not in ended for link in range(len(self._slot.links)))

    def _links_ended_by_mig(self, state: MachineState, gpu: GpuState) -> frozenset[int]:
        links = self._slot.links
        if not self._spec.links_end_with_mig:
            return frozenset()
        if gpu.mig.enabled:
            return frozenset(range(len(links)))
        in_mig_mode = {pci for pci, other in state.gpus.items() if other.mig.enabled}
        return frozenset(link for link, end in enumerate(links) if end.remote in in_mig_mode)

    def _health(self, call: str, architectures: Collection[str] = (), since: int = 0) -> GpuHealth:
        """The health, if GPU and driver report it. A vGPU guest sees nothing of the board's health.

        ``architectures`` support the call, all of them if empty; ``since`` is the driver's first release
        that has the function.
        """
        state, gpu = self._enter(call)
        product = self._spec.product
        if release(state.driver_version) < since:
            raise self._failure(call, Code.FUNCTION_NOT_FOUND)
        if product.virtualization == "vgpu" or (architectures and product.architecture not in architectures):
            raise self._failure(call, Code.NOT_SUPPORTED)
        return gpu.health


class FakeEventSet:
    """An NVML event set: the events of some GPUs, given as UUIDs by address, from now on."""

    def __init__(self, session: FakeSession, store: StateStore, gpus: Mapping[PciAddress, str]) -> None:
        self._session = session
        self._number = session.number
        self._store = store
        self._gpus = dict(gpus)
        self._changes = store.changes()
        self._next = store.read().events.next_number
        self.is_closed = False

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs whose events are reported."""
        return frozenset(self._gpus.values())

    def kinds(self) -> Mapping[str, frozenset[EventKind]]:
        """The kinds of events that each of them reports: a fake GPU can be made to report any."""
        return dict.fromkeys(self._gpus.values(), _EVERY_KIND)

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event, or None after so many seconds; raises GpuLost once a GPU fell off the bus."""
        until = time.monotonic() + seconds
        while True:
            self._check_open()
            state = self._session.enter(_WAIT)
            # A fault rule may have made the call hang; the set may have been closed meanwhile.
            self._check_open()
            event = self._next_event(state)
            if event is not None:
                return event
            # Only after the queued events: those from before the loss, such as XID 79, are still delivered.
            self._check_gpus(state)
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._changes.wait(left)

    def close(self) -> None:
        """Close the set; a thread that waits ends with SessionLost."""
        self.is_closed = True
        self._changes.wake()

    def _next_event(self, state: MachineState) -> GpuEvent | None:
        missed = state.events.misses(self._next)
        found = state.events.since(self._next, frozenset(self._gpus))
        if not found:
            self._next = state.events.next_number
            return None
        self._next = found[0].number + 1
        # Only structured events report that others were dropped (an attribute bit, since R615); the old form
        # loses events silently.
        drops = missed and release(state.driver_version) >= FIRST_WITH_STRUCTURED_EVENTS
        return replace(found[0].event, dropped=True) if drops else found[0].event

    def _check_gpus(self, state: MachineState) -> None:
        for pci in self._gpus:
            gpu = state.gpus[pci]
            if gpu.lost or not gpu.present:
                raise GpuLost(NODE_CALLS[_WAIT], Code.GPU_IS_LOST, str(pci))

    def _check_open(self) -> None:
        """Raise SessionLost if the set is closed, or if another session has begun since it was made."""
        if self.is_closed or self._session.number != self._number:
            raise SessionLost(NODE_CALLS[_WAIT], Code.UNINITIALIZED)
