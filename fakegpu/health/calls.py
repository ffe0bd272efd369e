"""What the NVML of a fake machine says of the health of GPUs: answers to calls, and events."""

# ruff: noqa: D102 - the protocol of driver.nvml.health.calls documents the calls
from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, GpuLost, SessionLost, failure
from driver.nvml.health.calls import (
    EccErrors,
    FabricHealth,
    GpuEvent,
    RecoveryAction,
    RemappedRows,
)
from driver.nvml.pci_address import PciAddress
from fakegpu.health.state import GpuHealth
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.state import GpuState, MachineState, StateStore
from fakegpu.nvml.session import FakeSession

FIRST_WITH_STRUCTURED_EVENTS = 615
"""The first release of the NVIDIA driver that reports severity, containment and unrepairable memory."""

_FIRST_WITH_RECOVERY_ACTION = 570
_RETIRES_PAGES = ("Volta", "Turing")
_TELLS_UNREPAIRABLE = ("Hopper", "Blackwell")

_WAIT = "wait_events"


def release(driver_version: str) -> int:
    """The number in front of an NVIDIA driver's version."""
    return int(driver_version.partition(".")[0])


class FakeHealthCalls:
    """What FakeDevice answers about health."""

    _session: FakeSession
    _spec: MachineSpec
    _slot: Slot
    _number: int

    def recovery_action(self) -> RecoveryAction | None:
        state, _ = self._asked("recovery_action")
        if release(state.driver_version) < _FIRST_WITH_RECOVERY_ACTION:
            raise self._cannot("recovery_action", Code.NOT_SUPPORTED)
        return self._health("recovery_action").recovery_action

    def remapped_rows(self) -> RemappedRows:
        health = self._health("remapped_rows")
        if self._spec.product.architecture in _RETIRES_PAGES:
            raise self._cannot("remapped_rows", Code.NOT_SUPPORTED)
        return health.rows

    def retired_pages_pending(self) -> bool:
        return self._health("retired_pages_pending", of=_RETIRES_PAGES).page_pending

    def unrepairable_memory(self) -> bool:
        health = self._health(
            "unrepairable_memory", of=_TELLS_UNREPAIRABLE, since=FIRST_WITH_STRUCTURED_EVENTS
        )
        return health.unrepairable

    def ecc_errors(self) -> EccErrors:
        return self._health("ecc_errors").ecc

    def fabric_health(self) -> FabricHealth:
        health = self._health("fabric_health")
        if self._spec.fabric is None or self._spec.fabric.state != "completed":
            raise self._cannot("fabric_health", Code.NOT_SUPPORTED)
        return health.fabric

    def links_up(self) -> tuple[bool, ...]:
        """Whether each NVLink is up, by its number; MIG mode cuts some."""
        state, gpu = self._asked("nvlinks")
        if not self._slot.links:
            raise self._cannot("nvlinks", Code.NOT_SUPPORTED)
        cut = self._links_cut_by_mig(state, gpu)
        return tuple(link not in cut for link in range(len(self._slot.links)))

    def _links_cut_by_mig(self, state: MachineState, gpu: GpuState) -> frozenset[int]:
        links = self._slot.links
        if not self._spec.links_end_with_mig:
            return frozenset()
        if gpu.mig.enabled:
            return frozenset(range(len(links)))
        cut = {pci for pci, other in state.gpus.items() if other.mig.enabled}
        return frozenset(link for link, end in enumerate(links) if end.remote in cut)

    def _health(self, call: str, of: Collection[str] = (), since: int = 0) -> GpuHealth:
        """The health, where GPU and driver report it: a vGPU guest learns nothing of the board."""
        state, gpu = self._asked(call)
        product = self._spec.product
        if release(state.driver_version) < since:
            raise self._cannot(call, Code.FUNCTION_NOT_FOUND)
        if product.virtualization == "vgpu" or (of and product.architecture not in of):
            raise self._cannot(call, Code.NOT_SUPPORTED)
        return gpu.health

    def _asked(self, call: str) -> tuple[MachineState, GpuState]:
        return self._session.gpu_call(call, self._slot.pci, self._number)

    def _cannot(self, call: str, code: Code) -> Exception:
        return failure(GPU_CALLS[call], code, str(self._slot.pci))


class FakeEventSet:
    """The events of some GPUs, whose addresses and UUIDs are ``gpus``, from now on."""

    def __init__(self, session: FakeSession, store: StateStore, gpus: Mapping[PciAddress, str]) -> None:
        self._session = session
        self._number = session.number
        self._store = store
        self._gpus = dict(gpus)
        self._changes = store.changes()
        self._next = store.read().events.next_number
        self.is_closed = False

    def watched(self) -> frozenset[str]:
        """The UUIDs of the GPUs."""
        return frozenset(self._gpus.values())

    def wait(self, seconds: float) -> GpuEvent | None:
        """The next event; events from before a GPU fell off the bus come before that fact."""
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
        """End it, and every wait."""
        self.is_closed = True
        self._changes.wake()

    def _next_event(self, state: MachineState) -> GpuEvent | None:
        missed = state.events.misses(self._next)
        found = state.events.since(self._next, frozenset(self._gpus))
        if not found:
            self._next = state.events.next_number
            return None
        self._next = found[0].number + 1
        # Only structured events tell that others were dropped; the old form loses them without a word.
        drops = missed and release(state.driver_version) >= FIRST_WITH_STRUCTURED_EVENTS
        return replace(found[0].event, dropped=True) if drops else found[0].event

    def _check_gpus(self, state: MachineState) -> None:
        for pci in self._gpus:
            gpu = state.gpus[pci]
            if gpu.lost or not gpu.present:
                raise GpuLost(NODE_CALLS[_WAIT], Code.GPU_IS_LOST, str(pci))

    def _check_open(self) -> None:
        """Raise SessionLost once the set is closed, or another session was begun since."""
        if self.is_closed or self._session.number != self._number:
            raise SessionLost(NODE_CALLS[_WAIT], Code.UNINITIALIZED)
