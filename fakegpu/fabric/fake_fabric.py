"""The fabric manager of a fake machine, and what an admin, a fault or a reboot does to its NVLink fabric."""

# ruff: noqa: D102 - the protocol in driver.fabric.api documents these methods
from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import ConfigError
from driver.fabric import api
from fakegpu.fabric.state import FabricFault, FabricState, Registration
from fakegpu.machine.spec import FabricSpec, MachineSpec
from fakegpu.machine.state import MachineState, StateStore

if TYPE_CHECKING:
    _Edit = Callable[[FabricState, str], FabricState]


class FakeFabricManager:
    """The fabric manager of a fake machine, as one process sees it."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self._spec = spec
        self._store = store

    def instance(self) -> Hashable | None:
        fabric = self._store.read().fabric
        return fabric.session if fabric.running else None

    def partitions(self) -> tuple[api.FabricPartition, ...]:
        with_faults = self._enter("partitions")
        state = self._store.read()
        found = tuple(
            api.FabricPartition(
                number,
                tuple(self._gpu(state, module) for module in sorted(modules)),
                number in state.fabric.active,
            )
            for number, modules in enumerate(self._shared("partitions").partitions)
        )
        self._leave("partitions", "", with_faults)
        return found

    def activate(self, partition: int) -> None:
        def edit(fabric: FabricState, call: str) -> FabricState:
            modules = self._modules(call, partition)
            # Partitions that share a GPU cannot be active at the same time.
            if any(modules & self._modules(call, other) for other in fabric.active):
                raise api.fabric_failure(call, api.FabricCode.IN_USE, f"partition {partition}")
            numbers = tuple(sorted({*fabric.active, partition}))
            return replace(fabric, active=numbers, connected=tuple(sorted({*fabric.connected, partition})))

        self._change("activate", partition, edit)

    def deactivate(self, partition: int) -> None:
        def edit(fabric: FabricState, call: str) -> FabricState:
            self._modules(call, partition)
            if partition not in fabric.active:
                raise api.fabric_failure(call, api.FabricCode.UNINITIALIZED, f"partition {partition}")
            return replace(
                fabric,
                active=tuple(one for one in fabric.active if one != partition),
                connected=tuple(one for one in fabric.connected if one != partition),
            )

        self._change("deactivate", partition, edit)

    def set_activated(self, partitions: tuple[int, ...]) -> None:
        self._shared("set_activated")
        with_faults = self._enter("set_activated")
        call = api.CALLS["set_activated"]

        def edit(state: MachineState) -> MachineState:
            # Only a fabric manager that was started with FABRIC_MODE_RESTART=1 takes this list, only once.
            if not state.fabric.waits:
                raise api.fabric_failure(call, api.FabricCode.NOT_SUPPORTED)
            for partition in partitions:
                self._modules(call, partition)
            fabric = replace(state.fabric, waits=False, active=tuple(sorted(set(partitions))))
            return replace(state, fabric=fabric)

        self._store.change(edit)
        self._leave("set_activated", "", with_faults)

    def _change(self, method: str, partition: int, edit: _Edit) -> None:
        self._shared(method)
        with_faults = self._enter(method)
        call = api.CALLS[method]

        def change(state: MachineState) -> MachineState:
            if state.fabric.waits:
                raise api.fabric_failure(call, api.FabricCode.NOT_CONFIGURED, f"partition {partition}")
            return replace(state, fabric=edit(state.fabric, call))

        self._store.change(change)
        self._leave(method, f"partition {partition}", with_faults)

    def _modules(self, call: str, partition: int) -> frozenset[int]:
        partitions = self._shared("partitions").partitions
        if partition not in range(len(partitions)):
            raise api.fabric_failure(call, api.FabricCode.BADPARAM, f"partition {partition}")
        return partitions[partition]

    def _shared(self, method: str) -> FabricSpec:
        """The fabric partitions of the machine; raises unless the fabric manager runs in shared mode."""
        fabric = self._store.read().fabric
        if not fabric.running:
            raise api.NoFabricManager("the fabric manager of this node has no socket for commands")
        if self._spec.fabric_manager is None or not fabric.shared:
            raise api.fabric_failure(api.CALLS[method], api.FabricCode.NOT_SUPPORTED)
        return self._spec.fabric_manager

    def _gpu(self, state: MachineState, module: int) -> api.FabricGpu:
        slot = next(slot for slot in self._spec.slots if slot.module_id == module)
        gpu = state.gpus[slot.pci]
        if not gpu.present or not self._shared("partitions").tells_identities:
            return api.FabricGpu(module)
        return api.FabricGpu(module, self._spec.board_uuid(slot.pci, gpu.board), slot.pci)

    def _enter(self, method: str) -> tuple[FabricFault, ...]:
        """Apply the rules that spoil the call before its work; returns those that spoil it afterwards."""
        hits = tuple(fault for fault in self._store.read().fabric.faults if fault.call == method)
        for fault in hits:
            if not fault.after:
                self._fail(method, "", fault)
        return tuple(fault for fault in hits if fault.after)

    def _leave(self, method: str, subject: str, faults: tuple[FabricFault, ...]) -> None:
        for fault in faults:
            self._fail(method, subject, fault)

    def _fail(self, method: str, subject: str, fault: FabricFault) -> None:
        """Count a hit of a rule and raise what it makes of the call."""

        def count_hit(state: MachineState) -> MachineState:
            left = [
                replace(one, times=one.times - 1) if one == fault and one.times is not None else one
                for one in state.fabric.faults
            ]
            faults = tuple(one for one in left if one.times is None or one.times > 0)
            return replace(state, fabric=replace(state.fabric, faults=faults))

        self._store.change(count_hit)
        if fault.code is None:
            raise api.FabricTimeout(f"{api.CALLS[method]} did not return in time")
        raise api.fabric_failure(api.CALLS[method], fault.code, subject)


class FakeFabric:
    """The fabric of one machine."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self._spec = spec
        self._store = store

    def manager(self) -> FakeFabricManager:
        """The fabric manager as one process sees it."""
        return FakeFabricManager(self._spec, self._store)

    @property
    def state(self) -> FabricState:
        """The fabric now."""
        return self._store.read().fabric

    def stop(self) -> None:
        """Stop the fabric manager; the NVSwitches keep what is connected."""
        self._change(lambda fabric: replace(fabric, running=False))

    def start(self, *, keeps: bool = True, shared: bool | None = None) -> None:
        """Start the fabric manager again, with FABRIC_MODE_RESTART=1 if it ``keeps`` what is connected.

        It then waits for the list of active partitions. Otherwise it disconnects everything. ``shared`` is
        whether it runs in shared NVSwitch mode, None for the previous mode.
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

    def register(self, gpus: Registration) -> None:
        """Set how far the GPUs' registration in the fabric has come, as NVML reports it."""
        self._change(lambda fabric: replace(fabric, gpus=gpus))

    def fail(
        self, call: str, code: int | None = None, times: int | None = None, *, after: bool = False
    ) -> None:
        """Make a call fail with ``code``, or time out without one; raises ConfigError for an unknown call."""
        if call not in api.CALLS:
            raise ConfigError(f"there is no call {call!r}", f"name one of {', '.join(sorted(api.CALLS))}")
        fault = FabricFault(call, code, times, after)
        self._change(lambda fabric: replace(fabric, faults=(*fabric.faults, fault)))

    def heal(self) -> None:
        """Remove all rules that spoil calls."""
        self._change(lambda fabric: replace(fabric, faults=()))

    def _change(self, edit: Callable[[FabricState], FabricState]) -> None:
        self._store.change(lambda state: replace(state, fabric=edit(state.fabric)))
