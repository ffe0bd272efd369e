"""The hands that change the NVLink fabric of a fake machine, as an admin, a fault or a reboot does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.fabric.api import CALLS
from fakegpu.fabric.answers import FakeFabricManager
from fakegpu.fabric.state import FabricFault, FabricState

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.api import FabricInfoState
    from fakegpu.machine.spec import MachineSpec
    from fakegpu.machine.state import StateStore


class FakeFabric:
    """The fabric of one machine."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self._spec = spec
        self._store = store

    def manager(self) -> FakeFabricManager:
        """The fabric manager as one process asks it."""
        return FakeFabricManager(self._spec, self._store)

    @property
    def state(self) -> FabricState:
        """The fabric now."""
        return self._store.read().fabric

    def stop(self) -> None:
        """End the fabric manager; the switches go on as they are."""
        self._change(lambda fabric: replace(fabric, running=False))

    def start(self, *, keeps: bool = True, shared: bool | None = None) -> None:
        """Start the fabric manager anew, with FABRIC_MODE_RESTART=1 if it ``keeps`` what is connected.

        It then waits to be told; else it disconnects everything. ``shared`` is its mode, None for that of
        before.
        """
        self._change(
            lambda fabric: replace(
                fabric,
                running=True,
                session=fabric.session + 1,
                shared=fabric.shared if shared is None else shared,
                waits=keeps,
                active=(),
                connected=fabric.connected if keeps else (),
            )
        )

    def register(self, gpus: FabricInfoState) -> None:
        """Say how far the GPUs have come with their registration in the fabric."""
        self._change(lambda fabric: replace(fabric, gpus=gpus))

    def fail(
        self, call: str, code: int | None = None, times: int | None = None, *, after: bool = False
    ) -> None:
        """Spoil a call: it ends with ``code``, or is overdue without one; raises ConfigError."""
        if call not in CALLS:
            raise ConfigError(f"there is no call {call!r}", f"name one of {', '.join(sorted(CALLS))}")
        fault = FabricFault(call, code, times, after)
        self._change(lambda fabric: replace(fabric, faults=(*fabric.faults, fault)))

    def heal(self) -> None:
        """Remove all rules that spoil calls."""
        self._change(lambda fabric: replace(fabric, faults=()))

    def _change(self, edit: Callable[[FabricState], FabricState]) -> None:
        self._store.change(lambda state: replace(state, fabric=edit(state.fabric)))
