"""What all controls of a fake machine share: naming one of its GPUs, and changing it."""

from __future__ import annotations

from collections.abc import Callable

from driver.errors import ConfigError
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.spec import MachineSpec
from fakegpu.machine.state import GpuState, MachineState, StateStore, with_gpu
from fakegpu.sysfs.change import settle

GpuSelector = int | str | PciAddress
"""A GPU of a fake machine: its index, its UUID, or its PCI address."""


class Controls:
    """The base of the classes that FakeMachine is made of."""

    def __init__(self, spec: MachineSpec, store: StateStore) -> None:
        self.spec = spec
        self._store = store

    @property
    def state(self) -> MachineState:
        """Everything that can change, as it is now."""
        return self._store.read()

    def pci(self, gpu: GpuSelector) -> PciAddress:
        """The address of a GPU of the machine; raises ConfigError if it has no such GPU."""
        state = self.state
        for index, pci in enumerate(state.listed()):
            if gpu in (index, pci, str(pci), self.uuid(pci)):
                return pci
        # A GPU that NVML does not list has no index and shows no UUID, but keeps its address.
        for pci in state.gpus:
            if gpu in (pci, str(pci)):
                return pci
        raise ConfigError(f"the machine {self.spec.name} has no GPU {gpu}", "name an index, UUID or address")

    def uuid(self, gpu: PciAddress) -> str:
        """The UUID of the board in the slot at an address."""
        return self.spec.board_uuid(gpu, self.state.gpus[gpu].board)

    def settle(self) -> None:
        """Let the kernel do the writes that waited until a process closed a function."""
        settle(self.spec, self._store)

    def _change_gpu(self, gpu: GpuSelector, edit: Callable[[GpuState], GpuState]) -> None:
        """Change the state of a GPU."""
        pci = self.pci(gpu)
        self._store.change(lambda state: with_gpu(state, pci, edit(state.gpus[pci])))
