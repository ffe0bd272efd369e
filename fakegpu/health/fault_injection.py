"""What a test or a demo does to the health of a fake machine's GPUs.

The methods set what NVML answers from then on; a GPU is given as in GpuSelector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from fakegpu.health.calls import FIRST_WITH_STRUCTURED_EVENTS, release
from fakegpu.machine.controls import Controls, GpuSelector
from fakegpu.machine.state import MachineState, with_gpu

_FELL_OFF_BUS_XID = 79


class FaultInjection(Controls):
    """The part of FakeMachine about health."""

    def xid(
        self,
        gpu: GpuSelector,
        code: int,
        *,
        gpu_instance: int | None = None,
        compute_instance: int | None = None,
        times: int = 1,
    ) -> None:
        """Make the driver report an XID ``times`` times, in the form without severity and containment.

        With XID 79 the GPU also falls off the bus. Other XIDs change nothing: the other methods set replaced
        rows, errors and the recovery action.
        """
        event = GpuEvent("xid", "", code, gpu_instance, compute_instance)
        self._add_event(gpu, event, times)

    def event(
        self,
        gpu: GpuSelector,
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
        """Make the driver report an event that is not a plain XID; see GpuEvent.

        ``kind`` does not count if ``xid`` is given. Raises ConfigError for fields of structured events with
        a driver before R615.
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
                f"the driver {version} does not report severity, containment or recovery",
                f"give the machine driver {FIRST_WITH_STRUCTURED_EVENTS} or newer",
            )

    def recovery_action(self, gpu: GpuSelector, action: RecoveryAction | None) -> None:
        """Set the recovery action; None is a value that this project's binding does not know."""
        self._change_health(gpu, recovery_action=action)

    def rows(self, gpu: GpuSelector, rows: RemappedRows) -> None:
        """Set which rows of the memory were replaced."""
        self._change_health(gpu, rows=rows)

    def page_pending(self, gpu: GpuSelector, pending: bool) -> None:
        """Set whether a memory page is to be retired at the next reset, as on GPUs before Ampere."""
        self._change_health(gpu, page_pending=pending)

    def unrepairable(self, gpu: GpuSelector, unrepairable: bool) -> None:
        """Set whether the memory has a defect that no reset repairs."""
        self._change_health(gpu, unrepairable=unrepairable)

    def ecc(self, gpu: GpuSelector, errors: EccErrors) -> None:
        """Set the counts of memory errors."""
        self._change_health(gpu, ecc=errors)

    def fabric_health(self, gpu: GpuSelector, fabric: FabricHealth) -> None:
        """Set the health of the GPU's part of the fabric."""
        self._change_health(gpu, fabric=fabric)

    def _change_health(self, gpu: GpuSelector, **changes: Any) -> None:
        """Replace fields of a GPU's GpuHealth."""
        self._change_gpu(gpu, lambda old: replace(old, health=replace(old.health, **changes)))

    def _add_event(self, gpu: GpuSelector, event: GpuEvent, times: int) -> None:
        pci = self.pci(gpu)

        def edit_state(state: MachineState) -> MachineState:
            old = state.gpus[pci]
            named = replace(event, uuid=self.spec.board_uuid(pci, old.board))
            new = replace(old, lost=True) if event.xid == _FELL_OFF_BUS_XID else old
            return replace(with_gpu(state, pci, new), events=state.events.with_event(pci, named, times))

        self._store.change(edit_state)
