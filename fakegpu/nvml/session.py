"""One process's NVML session with a fake machine, and its handles to GPUs.

Each call is checked here before it is answered: the NVIDIA driver may be gone, the session may be older than
the loaded driver, the GPU may be lost, and a fault rule may spoil the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, failure
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.faults import CallFault, after_hit
from fakegpu.machine.holds import GpuHold
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.state import GpuState, MachineState, StateStore, with_gpu
from fakegpu.nvml.partitions_shown import change_with_partitions
from fakegpu.sysfs.change import change_node, settle

SMI_CALLS: dict[str, str] = {
    "time_slice": "nvidia-smi compute-policy --list",
    "set_time_slice": "nvidia-smi compute-policy --set-timeslice",
}
"""Time-slices, which nvidia-smi reads and sets in the kernel driver itself: NVML has no function for them.

Fault rules name them like NVML calls.
"""

FAKE_GPU_CALLS: dict[str, str] = GPU_CALLS | SMI_CALLS


class FakeSession:
    """The session of one process. Its handles carry its ``number``, which is None before ``begin``."""

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
        self._apply_faults(state, "init", None)
        settle(self._spec, self._store)
        # Later bindings have higher numbers: ``listed`` leaves those GPUs out.
        self._bindings = self._store.read_kernel(self._spec).bindings
        self.number = self._store.read().session

    def end(self) -> None:
        """Do what ``nvmlShutdown`` does: no GPU is held open any more, even if the call fails."""
        self._release_gpus()
        self.enter("shutdown")
        self._sampled.clear()
        self.number = None

    def listed(self) -> list[PciAddress]:
        """The GPUs that NVML lists in this session, in the order of their indexes."""
        listed = self._store.read().listed()
        functions = self._store.read_kernel(self._spec).functions
        # NVML reads the list of GPUs in nvmlInit: a GPU that gets the NVIDIA driver later is not in it.
        return [pci for pci in listed if pci not in functions or functions[pci].bound <= self._bindings]

    def hold(self, pci: PciAddress, minor: int) -> None:
        """Hold a GPU open until the session ends, as NVML does with each GPU that it gave a handle of."""
        if pci not in self._holds:
            roots = self._store.read_kernel(self._spec).device_roots
            self._holds[pci] = GpuHold(self._store.holds.hold(pci), roots, minor)

    def is_first_sample(self, pci: PciAddress, gpu_instance: int) -> bool:
        """Whether this is the session's first sample of a GPU instance, so that there is none to compare."""
        is_first = (pci, gpu_instance) not in self._sampled
        self._sampled.add((pci, gpu_instance))
        return is_first

    def _release_gpus(self) -> None:
        if self._holds:
            for hold in self._holds.values():
                hold.release()
            self._holds.clear()
            # The unbinding of a driver may have waited for this process.
            settle(self._spec, self._store)

    def gpu_call(self, call: str, pci: PciAddress, session: int) -> tuple[MachineState, GpuState]:
        """Enter a call on a GPU through a handle of ``session``; returns the state to answer from.

        Raises the error that the call ends with.
        """
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
        """Change the state for a call that was entered. If ``edit`` raises, nothing changes.

        Nothing changes either if a fault rule makes the call lie.
        """
        if self._lies(call, pci):
            return
        if self._spec.product.vgpu is None:
            state = change_with_partitions(self._spec, self._store, edit)
        else:
            # On a vGPU host sysfs lists the vGPU types that still fit, so files change with the machine.
            state = change_node(
                self._spec, self._store, lambda node: replace(node, machine=edit(node.machine))
            ).machine
        self._apply_faults(state, call, pci, after=True)

    def enter(self, call: str, pci: PciAddress | None = None) -> MachineState:
        """Begin a call: apply the fault rules, then check the session and that the driver is loaded."""
        state = self._store.read()
        if state.faults:
            self._apply_faults(state, call, pci)
            # A fault may have taken long: the driver may be gone by now.
            state = self._store.read()
        if self.number is None or (state.driver_loaded and self.number != state.session):
            raise failure(_c_function(call), Code.UNINITIALIZED, _subject(pci))
        if not state.driver_loaded:
            raise failure(_c_function(call), Code.DRIVER_NOT_LOADED, _subject(pci))
        return state

    def _lies(self, call: str, pci: PciAddress) -> bool:
        """Whether a rule makes this call report success and do nothing; a counted rule counts it as a hit."""
        lies = [fault for fault in self._store.read().faults if fault.lie and fault.hits(call, pci)]
        return any(fault.times is None or self._count_hit(fault) for fault in lies)

    def _apply_faults(
        self, state: MachineState, call: str, pci: PciAddress | None, *, after: bool = False
    ) -> None:
        """Apply the rules that hit this call, oldest first: wait, hang until the rule is gone, or fail."""
        for fault in state.faults:
            if fault.lie or fault.after != after or not fault.hits(call, pci):
                continue
            if fault.times is not None and not self._count_hit(fault):
                continue
            if fault.code is not None:
                raise failure(_c_function(call), fault.code, _subject(pci))
            if fault.seconds is not None:
                Event().wait(fault.seconds)
                continue
            # Neither a code nor a time: the call hangs until the rule is removed.
            while any(fault.number == other.number for other in self._store.read().faults):
                self._store.wait()

    def _count_hit(self, fault: CallFault) -> bool:
        """Count a hit of a counted rule; False if calls of other threads or processes have used it up."""
        counted = False

        def edit(state: MachineState) -> MachineState:
            nonlocal counted
            counted = any(fault.number == other.number for other in state.faults)
            return replace(state, faults=after_hit(state.faults, fault.number))

        self._store.change(edit)
        return counted


class GpuHandle:
    """A handle to one GPU, valid in the session with this ``number``: what all groups of calls need."""

    def __init__(self, session: FakeSession, spec: MachineSpec, slot: Slot, number: int) -> None:
        self._session = session
        self._spec = spec
        self._slot = slot
        self._number = number

    def _enter(self, call: str) -> tuple[MachineState, GpuState]:
        """Enter a call; returns the state to answer from, or raises the error that the call ends with."""
        return self._session.gpu_call(call, self._slot.pci, self._number)

    def _change(self, call: str, edit: Callable[[GpuState], GpuState]) -> None:
        """Change the GPU for a call that was entered."""

        def edit_state(state: MachineState) -> MachineState:
            return with_gpu(state, self._slot.pci, edit(state.gpus[self._slot.pci]))

        self._session.change(call, self._slot.pci, edit_state)

    def _failure(self, call: str, code: Code, about: str = "") -> Exception:
        """The error of a call; ``about`` is what the message says after the GPU's address."""
        return failure(FAKE_GPU_CALLS[call], code, f"{self._slot.pci}{about}")


def _c_function(call: str) -> str:
    return NODE_CALLS.get(call) or FAKE_GPU_CALLS[call]


def _subject(pci: PciAddress | None) -> str:
    return str(pci) if pci else ""
