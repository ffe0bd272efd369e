"""A stateful NVML: behaves as the machine that a file describes, faults that a test injects included."""

# ruff: noqa: D102 - the protocols of driver.nvml.api document these methods

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from driver.nvml.api import GPU_CALLS, NODE_CALLS, Code, MigMode, failure
from fakegpu.capabilities import change_with_capabilities
from fakegpu.mig_calls import FakeMigCalls
from fakegpu.sharing_calls import FAKE_GPU_CALLS, FakeSharingCalls
from fakegpu.spec import topology_level
from fakegpu.state import without_fault_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.nvml.api import (
        AddressingMode,
        FabricInfo,
        NvLinkEnd,
        P2pStatus,
        TopologyLevel,
        Virtualization,
    )
    from driver.nvml.pci_address import PciAddress
    from fakegpu.spec import MachineSpec, Slot
    from fakegpu.state import Fault, GpuState, MachineState, StateStore


class FakeNvml:
    """NVML of a fake machine: one process's view, with a session of its own."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self._spec = spec
        self._store = store
        self._session: int | None = None

    def init(self) -> None:
        state = self._store.read()
        if not state.driver_loaded:
            raise failure(NODE_CALLS["init"], Code.DRIVER_NOT_LOADED)
        self._suffer(state, "init", None)
        self._session = self._store.read().session

    def shutdown(self) -> None:
        self._enter("shutdown")
        self._session = None

    def driver_version(self) -> str:
        return self._enter("driver_version").driver_version

    def cuda_driver_version(self) -> str:
        return self._enter("cuda_driver_version").cuda_driver_version

    def device_count(self) -> int:
        return len(self._enter("device_count").listed())

    def device_by_index(self, index: int) -> FakeDevice:
        listed = self._store.read().listed()
        if index not in range(len(listed)):
            self._enter("device_by_index")
            raise failure(GPU_CALLS["device_by_index"], Code.INVALID_ARGUMENT, f"GPU {index}")
        return self._device("device_by_index", listed[index])

    def device_by_pci(self, pci: PciAddress) -> FakeDevice:
        return self._device("device_by_pci", pci)

    def gpu_call(self, call: str, pci: PciAddress, session: int) -> tuple[MachineState, GpuState]:
        """Enter a call on a GPU through a handle of ``session``: the state to answer from, or its error."""
        state = self._enter(call, pci)
        gpu = state.gpus.get(pci)
        if gpu is None or not gpu.present:
            raise failure(FAKE_GPU_CALLS[call], Code.NOT_FOUND, str(pci))
        if gpu.lost:
            raise failure(FAKE_GPU_CALLS[call], Code.GPU_IS_LOST, str(pci))
        if session != state.session:
            raise failure(FAKE_GPU_CALLS[call], Code.UNINITIALIZED, str(pci))
        return state, gpu

    def change(self, call: str, pci: PciAddress, edit: Callable[[MachineState], MachineState]) -> None:
        """Change the state for a call that was entered; what ``edit`` raises leaves it as it is."""
        state = change_with_capabilities(self._store, edit)
        self._suffer(state, call, pci, after=True)

    def _device(self, call: str, pci: PciAddress) -> FakeDevice:
        state, _ = self.gpu_call(call, pci, self._session or 0)
        return FakeDevice(self, self._spec, self._spec.slot(pci), state.session)

    def _enter(self, call: str, pci: PciAddress | None = None) -> MachineState:
        """Begin a call: the driver must be there and the session its own; then the faults have their turn."""
        state = self._store.read()
        if state.faults:
            self._suffer(state, call, pci)
            state = self._store.read()
        if self._session is None or (state.driver_loaded and self._session != state.session):
            raise failure(_c_function(call), Code.UNINITIALIZED, _subject(pci))
        if not state.driver_loaded:
            raise failure(_c_function(call), Code.DRIVER_NOT_LOADED, _subject(pci))
        return state

    def _suffer(self, state: MachineState, call: str, pci: PciAddress | None, *, after: bool = False) -> None:
        """Apply the rules that hit this call, oldest first: wait, hang until the rule is gone, or fail."""
        for fault in state.faults:
            if fault.after != after or not fault.hits(call, pci):
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
            return without_fault_use(state, fault.number)

        self._store.change(edit)
        return spent


class FakeDevice(FakeMigCalls, FakeSharingCalls):
    """One GPU of a fake machine, through a handle of one session."""

    def __init__(self, nvml: FakeNvml, spec: MachineSpec, slot: Slot, session: int) -> None:
        self._nvml = nvml
        self._spec = spec
        self._slot = slot
        self._session = session

    def _call(self, call: str) -> tuple[MachineState, GpuState]:
        return self._nvml.gpu_call(call, self._slot.pci, self._session)

    def _not_supported(self, call: str) -> Exception:
        return failure(GPU_CALLS[call], Code.NOT_SUPPORTED, str(self._slot.pci))

    def uuid(self) -> str:
        _, gpu = self._call("uuid")
        return self._spec.board_uuid(self._slot.pci, gpu.board)

    def minor(self) -> int:
        return self._call("minor")[1].minor

    def index(self) -> int:
        return self._call("index")[0].listed().index(self._slot.pci)

    def pci(self) -> PciAddress:
        self._call("pci")
        return self._slot.pci

    def name(self) -> str:
        self._call("name")
        return self._spec.product.name

    def brand(self) -> str | None:
        self._call("brand")
        return self._spec.product.brand

    def architecture(self) -> str | None:
        self._call("architecture")
        return self._spec.product.architecture

    def compute_capability(self) -> tuple[int, int]:
        self._call("compute_capability")
        return self._spec.product.compute_capability

    def memory_bytes(self) -> int:
        self._call("memory_bytes")
        if self._spec.product.memory_bytes is None:
            raise self._not_supported("memory_bytes")
        return self._spec.product.memory_bytes

    def addressing_mode(self) -> AddressingMode | None:
        self._call("addressing_mode")
        if self._spec.product.addressing_mode is None:
            raise self._not_supported("addressing_mode")
        return self._spec.product.addressing_mode

    def numa_node(self) -> int:
        self._call("numa_node")
        if self._slot.numa_node is None:
            raise self._not_supported("numa_node")
        return self._slot.numa_node

    def nvlinks(self) -> tuple[NvLinkEnd, ...]:
        self._call("nvlinks")
        if not self._slot.links:
            raise self._not_supported("nvlinks")
        return self._slot.links

    def mig_mode(self) -> MigMode:
        _, gpu = self._call("mig_mode")
        if self._spec.product.mig is None:
            raise self._not_supported("mig_mode")
        return MigMode(enabled=gpu.mig.enabled, pending=gpu.mig.pending)

    def fabric(self) -> FabricInfo:
        self._call("fabric")
        if self._spec.fabric is None:
            raise self._not_supported("fabric")
        return self._spec.fabric

    def virtualization(self) -> Virtualization | None:
        self._call("virtualization")
        return self._spec.product.virtualization

    def process_ids(self) -> tuple[int, ...]:
        _, gpu = self._call("process_ids")
        inside = (process.process_id for process in gpu.mig.processes())
        return tuple(sorted({*gpu.process_ids, *inside}))

    def common_ancestor(self, other: PciAddress) -> TopologyLevel:
        return topology_level(self._slot, self._other("common_ancestor", other))

    def p2p_read(self, other: PciAddress) -> P2pStatus:
        self._other("p2p_read", other)
        return "ok" if self._spec.p2p or other == self._slot.pci else "not-supported"

    def _other(self, call: str, other: PciAddress) -> Slot:
        self._call(call)
        self._nvml.gpu_call("device_by_pci", other, self._session)
        return self._spec.slot(other)


def _c_function(call: str) -> str:
    return NODE_CALLS.get(call) or FAKE_GPU_CALLS[call]


def _subject(pci: PciAddress | None) -> str:
    return str(pci) if pci else ""
