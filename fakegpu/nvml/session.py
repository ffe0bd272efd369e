"""One process's session with the NVML of a fake machine: what a call meets before it is answered.

The driver may be gone, the session an old one, the GPU lost; a fault may be waiting for the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, failure
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.holds import GpuHold
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import GpuState, MachineState, StateStore
from fakegpu.nvml.call_faults import Fault, without_use
from fakegpu.nvml.partitions_shown import change_with_partitions
from fakegpu.sysfs.change import change_node, settle

SMI_CALLS: dict[str, str] = {
    "time_slice": "nvidia-smi compute-policy --list",
    "set_time_slice": "nvidia-smi compute-policy --set-timeslice",
}
"""What nvidia-smi asks of the kernel driver without NVML; faults name it like a call of NVML."""

FAKE_GPU_CALLS: dict[str, str] = GPU_CALLS | SMI_CALLS


class FakeSession:
    """The session of one process, whose ``number`` its handles carry; None before ``begin``."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self._spec = spec
        self._store = store
        self._holds: dict[PciAddress, GpuHold] = {}
        self._bindings = 0
        self._sampled: set[tuple[PciAddress, int]] = set()
        self.number: int | None = None

    def begin(self) -> None:
        """Do what ``nvmlInit`` does."""
        state = self._store.read()
        if not state.driver_loaded:
            raise failure(NODE_CALLS["init"], Code.DRIVER_NOT_LOADED)
        self._suffer(state, "init", None)
        settle(self._spec, self._store)
        self._bindings = self._store.read_kernel(self._spec).bindings
        self.number = self._store.read().session

    def end(self) -> None:
        """Do what ``nvmlShutdown`` does: no GPU is held open any more, whatever it answers."""
        self._let_go()
        self.enter("shutdown")
        self._sampled.clear()
        self.number = None

    def listed(self) -> list[PciAddress]:
        """The GPUs that the machine lists for this session: none that was bound after its begin."""
        listed = self._store.read().listed()
        functions = self._store.read_kernel(self._spec).functions
        return [pci for pci in listed if pci not in functions or functions[pci].bound <= self._bindings]

    def hold(self, pci: PciAddress, minor: int) -> None:
        """Hold a GPU open till the session ends, as NVML does with each whose handle was asked for."""
        if pci not in self._holds:
            roots = self._store.read_kernel(self._spec).device_roots
            self._holds[pci] = GpuHold(self._store.holds.hold(pci), roots, minor)

    def first_sample(self, of: tuple[PciAddress, int]) -> bool:
        """Whether nobody has sampled this GPU instance in the session before, so nothing can be compared."""
        first = of not in self._sampled
        self._sampled.add(of)
        return first

    def _let_go(self) -> None:
        if self._holds:
            for hold in self._holds.values():
                hold.release()
            self._holds.clear()
            settle(self._spec, self._store)

    def gpu_call(self, call: str, pci: PciAddress, session: int) -> tuple[MachineState, GpuState]:
        """Enter a call on a GPU through a handle of ``session``: the state to answer from, or its error."""
        state = self.enter(call, pci)
        gpu = state.gpus.get(pci)
        if gpu is None or not gpu.present:
            code = Code.NOT_FOUND if call == "device_by_pci" else Code.GPU_NOT_FOUND
            raise failure(FAKE_GPU_CALLS[call], code, str(pci))
        if gpu.lost:
            raise failure(FAKE_GPU_CALLS[call], Code.GPU_IS_LOST, str(pci))
        if session != state.session:
            raise failure(FAKE_GPU_CALLS[call], Code.UNINITIALIZED, str(pci))
        return state, gpu

    def change(self, call: str, pci: PciAddress, edit: Callable[[MachineState], MachineState]) -> None:
        """Change the state for a call that was entered; what ``edit`` raises leaves it as it is.

        Where a rule has the call lie, nothing is changed.
        """
        if self._lies(call, pci):
            return
        if self._spec.product.vgpu is None:
            state = change_with_partitions(self._spec, self._store, edit)
        else:  # sysfs shows which vGPUs can be made of it then
            state = change_node(
                self._spec, self._store, lambda node: replace(node, machine=edit(node.machine))
            ).machine
        self._suffer(state, call, pci, after=True)

    def enter(self, call: str, pci: PciAddress | None = None) -> MachineState:
        """Begin a call: the driver must be there and the session its own; then the faults have their turn."""
        state = self._store.read()
        if state.faults:
            self._suffer(state, call, pci)
            state = self._store.read()
        if self.number is None or (state.driver_loaded and self.number != state.session):
            raise failure(_c_function(call), Code.UNINITIALIZED, _subject(pci))
        if not state.driver_loaded:
            raise failure(_c_function(call), Code.DRIVER_NOT_LOADED, _subject(pci))
        return state

    def _lies(self, call: str, pci: PciAddress) -> bool:
        """Whether a rule has this call say yes and do nothing; a counted one is used up by it."""
        lies = [fault for fault in self._store.read().faults if fault.lie and fault.hits(call, pci)]
        return any(fault.times is None or self._spend(fault) for fault in lies)

    def _suffer(self, state: MachineState, call: str, pci: PciAddress | None, *, after: bool = False) -> None:
        """Apply the rules that hit this call, oldest first: wait, hang until the rule is gone, or fail."""
        for fault in state.faults:
            if fault.lie or fault.after != after or not fault.hits(call, pci):
                continue
            if fault.times is not None and not self._spend(fault):
                continue
            if fault.code is not None:
                raise failure(_c_function(call), fault.code, _subject(pci))
            if fault.seconds is not None:
                Event().wait(fault.seconds)
                continue
            while any(fault.number == other.number for other in self._store.read().faults):
                self._store.wait()

    def _spend(self, fault: Fault) -> bool:
        """Use up one of a counted rule's times; False when others have used them all."""
        spent = False

        def edit(state: MachineState) -> MachineState:
            nonlocal spent
            spent = any(fault.number == other.number for other in state.faults)
            return replace(state, faults=without_use(state.faults, fault.number))

        self._store.change(edit)
        return spent


def _c_function(call: str) -> str:
    return NODE_CALLS.get(call) or FAKE_GPU_CALLS[call]


def _subject(pci: PciAddress | None) -> str:
    return str(pci) if pci else ""
