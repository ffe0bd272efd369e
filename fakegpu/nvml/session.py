"""One process's NVML session with a fake machine, and its handles to GPUs.

Each call is checked here before it is answered: the NVIDIA driver may be gone, the session may be older than
the loaded driver, the GPU may be lost, and a fault rule may spoil the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, failure
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.holds import GpuHold
from fakegpu.machine.spec import MachineSpec, Slot
from fakegpu.machine.spoiling import lies, spoil
from fakegpu.machine.state import GpuState, MachineState, StateStore, with_gpu
from fakegpu.memory.cuda import end_dead_clients
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
        self._apply_faults("init", None)
        end_dead_clients(self._store)
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
            change_with_partitions(self._spec, self._store, edit)
        else:
            # On a vGPU host sysfs lists the vGPU types that still fit, so files change with the machine.
            change_node(self._spec, self._store, lambda node: replace(node, machine=edit(node.machine)))
        self._apply_faults(call, pci, after=True)

    def enter(self, call: str, pci: PciAddress | None = None) -> MachineState:
        """Begin a call: apply the fault rules, then check the session and that the driver is loaded."""
        state = self._store.read()
        if state.faults:
            self._apply_faults(call, pci)
            # A fault may have taken long: the driver may be gone by now.
            state = self._store.read()
        state = end_dead_clients(self._store, state)
        if self.number is None or (state.driver_loaded and self.number != state.session):
            raise failure(_c_function(call), Code.UNINITIALIZED, _subject(pci))
        if not state.driver_loaded:
            raise failure(_c_function(call), Code.DRIVER_NOT_LOADED, _subject(pci))
        return state

    def _lies(self, call: str, pci: PciAddress) -> bool:
        """Whether a rule makes this call report success and do nothing."""
        return lies(self._store, lambda fault: fault.hits(call, pci))

    def _apply_faults(self, call: str, pci: PciAddress | None, *, after: bool = False) -> None:
        """Apply the rules that hit this call: wait, hang until the rule is gone, or fail."""
        spoil(
            self._store,
            lambda fault: fault.after == after and fault.hits(call, pci),
            lambda code: failure(_c_function(call), code, _subject(pci)),
        )


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
