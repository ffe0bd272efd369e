"""What a test or a demo does to the health of a fake machine's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driver.errors import ConfigError
from driver.nvml.health.calls import (
    EccErrors,
    EventKind,
    FabricHealth,
    GpuEvent,
    RecoveryAction,
    RemappedRows,
    Severity,
)
from driver.nvml.pci_address import PciAddress
from fakegpu.health.calls import FIRST_WITH_STRUCTURED_EVENTS, release
from fakegpu.health.state import GpuHealth
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import GpuState, MachineState, StateStore, with_gpu

_FELL_OFF = 79


class FaultInjection:
    """The part of FakeMachine about health. A GPU is its index, its UUID, or its address."""

    spec: MachineSpec
    _store: StateStore

    def pci(self, gpu: int | str | PciAddress) -> PciAddress:
        """The address of a GPU of the machine."""
        raise NotImplementedError

    def xid(
        self,
        gpu: int | str | PciAddress,
        code: int,
        *,
        gpu_instance: int | None = None,
        compute_instance: int | None = None,
        times: int = 1,
    ) -> None:
        """Let the driver report an XID, in the old form; ``times`` is how often, one after the other.

        XID 79 says that the GPU fell off the bus, which it does. What others leave behind (rows, errors, a
        recovery action) is set by the other methods.
        """
        event = GpuEvent("xid", "", code, gpu_instance, compute_instance)
        self._add_event(gpu, event, times)

    def event(
        self,
        gpu: int | str | PciAddress,
        *,
        kind: EventKind = "operational",
        xid: int | None = None,
        gpu_instance: int | None = None,
        compute_instance: int | None = None,
        severity: Severity | None = None,
        contained: bool | None = None,
        recovered: bool = False,
        component_reset: bool = False,
        dropped: bool = False,
        incident: str = "",
        times: int = 1,
    ) -> None:
        """Let the driver report another event, or one in the structured form; see GpuEvent.

        With an XID the kind is that. Raises ConfigError where a driver before R615 should tell what only
        structured events do.
        """
        structured = (severity, contained, recovered, component_reset, dropped, incident)
        if structured != (None, None, False, False, False, ""):
            self._check_structured()
        event = GpuEvent(
            "xid" if xid is not None else kind, "", xid, gpu_instance, compute_instance, *structured
        )
        self._add_event(gpu, event, times)

    def _check_structured(self) -> None:
        version = self._store.read().driver_version
        if release(version) < FIRST_WITH_STRUCTURED_EVENTS:
            raise ConfigError(
                f"the driver {version} tells of no severity, containment or recovery",
                f"give the machine driver {FIRST_WITH_STRUCTURED_EVENTS} or newer",
            )

    def recovery_action(self, gpu: int | str | PciAddress, action: RecoveryAction | None) -> None:
        """Say what makes the GPU well again; None is an answer that this driver does not know."""
        self._change_health(gpu, lambda health: replace(health, recovery_action=action))

    def rows(self, gpu: int | str | PciAddress, rows: RemappedRows) -> None:
        """Say which rows of the memory were replaced."""
        self._change_health(gpu, lambda health: replace(health, rows=rows))

    def page_pending(self, gpu: int | str | PciAddress, pending: bool) -> None:
        """Say whether a page waits for its retirement, as on GPUs before Ampere."""
        self._change_health(gpu, lambda health: replace(health, page_pending=pending))

    def unrepairable(self, gpu: int | str | PciAddress, unrepairable: bool) -> None:
        """Say whether the memory has what no reset repairs."""
        self._change_health(gpu, lambda health: replace(health, unrepairable=unrepairable))

    def ecc(self, gpu: int | str | PciAddress, errors: EccErrors) -> None:
        """Count errors of the memory."""
        self._change_health(gpu, lambda health: replace(health, ecc=errors))

    def fabric_health(self, gpu: int | str | PciAddress, fabric: FabricHealth) -> None:
        """Say how the GPU's part of the fabric is."""
        self._change_health(gpu, lambda health: replace(health, fabric=fabric))

    def _change_health(self, gpu: int | str | PciAddress, edit: Callable[[GpuHealth], GpuHealth]) -> None:
        pci = self.pci(gpu)

        def edit_state(state: MachineState) -> MachineState:
            old = state.gpus[pci]
            return with_gpu(state, pci, replace(old, health=edit(old.health)))

        self._store.change(edit_state)

    def _add_event(self, gpu: int | str | PciAddress, event: GpuEvent, times: int) -> None:
        pci = self.pci(gpu)

        def edit_state(state: MachineState) -> MachineState:
            old: GpuState = state.gpus[pci]
            named = replace(event, uuid=self.spec.board_uuid(pci, old.board))
            new = replace(old, lost=True) if event.xid == _FELL_OFF else old
            return replace(with_gpu(state, pci, new), events=state.events.with_event(pci, named, times))

        self._store.change(edit_state)
