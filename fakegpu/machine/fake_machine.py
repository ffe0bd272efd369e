"""The controls of a fake machine: what a test or a demo does to it while other processes use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from driver.errors import ConfigError
from driver.nvml.api import NODE_CALLS, Code
from driver.nvml.pci_address import PciAddress
from fakegpu.fabric.fake_fabric import FakeFabric
from fakegpu.health.fault_injection import FaultInjection
from fakegpu.health.state import WELL
from fakegpu.machine.capabilities import write_capabilities
from fakegpu.machine.cgroups import FakeCgroups, without_dead_groups
from fakegpu.machine.holds import Hold
from fakegpu.machine.mig_state import MigState
from fakegpu.machine.spec import MachineSpec, known_machines, load_machine
from fakegpu.machine.state import FakeLicense, FileStore, MachineState, MemoryStore, StateStore, with_gpu
from fakegpu.memory.calls import MEMORY_CHANGES
from fakegpu.memory.cuda import FakeCudaClient
from fakegpu.memory.state import Accounting
from fakegpu.mps.faults import ANY_COMMAND, MpsFault, MpsFaultKind, without_use
from fakegpu.nvml.call_faults import ANY_CALL, Fault
from fakegpu.nvml.fake_nvml import FakeNvml
from fakegpu.nvml.mig_calls import CHANGES
from fakegpu.nvml.partitions_shown import change_with_partitions
from fakegpu.nvml.session import FAKE_GPU_CALLS
from fakegpu.nvml.sharing_calls import SHARING_CHANGES
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.change import change_node, lay_device_files, node_now, settle
from fakegpu.sysfs.state import FaultKind, KernelFault
from fakegpu.sysfs.tree import PRETENDED, all_files, make_true
from fakegpu.sysfs.whole_machine import loaded, rebooted, unloaded
from fakegpu.use.pretended_use import PretendedUse

_PREFIX = "fake:"

_CHANGES = CHANGES | SHARING_CHANGES | MEMORY_CHANGES
_LIARS = SHARING_CHANGES | MEMORY_CHANGES

GpuSelector = int | str | PciAddress
"""A GPU of a fake machine: its index, its UUID, or its PCI address."""


class FakeMachine(FaultInjection, PretendedUse):
    """A machine, its state, and methods that change it; ``nvml`` shows it as a process would see it."""

    def __init__(self, spec: MachineSpec, store: StateStore, flag: str | None = None) -> None:
        """``flag`` is what another process opens the same machine with; None where none can."""
        self.spec = spec
        self.flag = flag
        self._store = store

    @classmethod
    def open(cls, text: str) -> FakeMachine:
        """Open ``[fake:]MACHINE[@STATE]``: a shipped machine's name or a file, and a state file to share.

        Without STATE the machine lives in the returned object alone. Raises ConfigError.
        """
        machine, _, state = text.removeprefix(_PREFIX).partition("@")
        spec = load_machine(machine)
        if state:
            named = machine if machine in known_machines() else Path(machine).absolute()
            flag = f"{_PREFIX}{named}@{Path(state).absolute()}"
            return cls(spec, FileStore(Path(state), spec), flag)
        return cls(spec, MemoryStore(MachineState.fresh(spec)))

    def nvml(self) -> FakeNvml:
        """NVML as one process sees it."""
        return FakeNvml(self.spec, self._store)

    @property
    def fabric(self) -> FakeFabric:
        """The NVLink fabric and its manager."""
        return FakeFabric(self.spec, self._store)

    @property
    def state(self) -> MachineState:
        """Everything that can change, as it is now."""
        return self._store.read()

    def pci(self, gpu: GpuSelector) -> PciAddress:
        """The address of a GPU of the machine; raises ConfigError when there is none."""
        state = self.state
        for index, pci in enumerate(state.listed()):
            if gpu in (index, pci, str(pci), self.uuid(pci)):
                return pci
        for pci in state.gpus:
            if gpu in (pci, str(pci)):
                return pci
        raise ConfigError(f"the machine {self.spec.name} has no GPU {gpu}", "name an index, UUID or address")

    def uuid(self, gpu: PciAddress) -> str:
        """The UUID of the board that sits at an address."""
        return self.spec.board_uuid(gpu, self.state.gpus[gpu].board)

    def fail(
        self,
        call: str = ANY_CALL,
        gpu: GpuSelector | None = None,
        code: int = Code.UNKNOWN,
        times: int | None = None,
    ) -> None:
        """Make calls fail with an NVML return code: ``call`` is a method of driver.nvml.api, ``*`` is any."""
        self._add_fault(gpu, Fault(0, call, None, code, times))

    def fail_after(
        self, call: str, gpu: GpuSelector | None = None, code: int = Code.UNKNOWN, times: int | None = None
    ) -> None:
        """Make calls that change a GPU fail after they have done their work; ConfigError for other calls."""
        _check_changes(call, _CHANGES)
        self._add_fault(gpu, Fault(0, call, None, code, times, after=True))

    def lie(self, call: str, gpu: GpuSelector | None = None, times: int | None = None) -> None:
        """Make calls that set something of a GPU succeed but do nothing; ConfigError for other calls."""
        _check_changes(call, _LIARS)
        self._add_fault(gpu, Fault(0, call, None, None, times, lie=True))

    def not_supported(self, call: str, gpu: GpuSelector | None = None) -> None:
        """Make calls answer NOT_SUPPORTED."""
        self._add_fault(gpu, Fault(0, call, None, Code.NOT_SUPPORTED))

    def hang(self, call: str = ANY_CALL, gpu: GpuSelector | None = None) -> None:
        """Make calls hang until ``heal``."""
        self._add_fault(gpu, Fault(0, call, None, None))

    def slow(self, seconds: float, call: str = ANY_CALL, gpu: GpuSelector | None = None) -> None:
        """Make calls take longer by so many seconds, until ``heal``."""
        self._add_fault(gpu, Fault(0, call, None, None, seconds=seconds))

    def heal(self, call: str | None = None, gpu: GpuSelector | None = None) -> None:
        """Remove the rules for a call and a GPU; a parameter that is left out means all."""
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            kept = (f for f in state.faults if call not in (None, f.call) or pci not in (None, f.pci))
            return replace(state, faults=tuple(kept))

        self._store.change(edit)

    def spoil_mps(
        self,
        kind: MpsFaultKind,
        command: str = ANY_COMMAND,
        words: str = "",
        gpu: GpuSelector | None = None,
        times: int | None = None,
    ) -> None:
        """Make the control daemons of MPS on a GPU hang, die, lie or refuse; see MpsFault."""
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            fault = MpsFault(state.next_fault, kind, command, pci, words, times)
            return replace(state, mps_faults=(*state.mps_faults, fault), next_fault=state.next_fault + 1)

        self._store.change(edit)

    def heal_mps(self) -> None:
        """Remove all rules that spoil the daemons of MPS; one that hangs goes on with what it was asked."""
        self._store.change(lambda state: replace(state, mps_faults=()))

    def spend_mps_fault(self, command: str, gpus: tuple[PciAddress, ...]) -> MpsFault | None:
        """The oldest rule that spoils a command of a daemon for these GPUs, used up by one; None without."""
        found: list[MpsFault] = []

        def edit(state: MachineState) -> MachineState:
            found.clear()
            found.extend([fault for fault in state.mps_faults if fault.hits(command, gpus)][:1])
            return replace(state, mps_faults=without_use(state.mps_faults, found))

        if any(fault.hits(command, gpus) for fault in self.state.mps_faults):
            self._store.change(edit)
        return found[0] if found else None

    def wait(self) -> None:
        """Wait until the machine may have changed."""
        self._store.wait()

    def set_license(self, gpu: GpuSelector, *, licensed: bool, expires: datetime | None = None) -> None:
        """Give a vGPU its license, until a time with a zone or for ever, or take it away."""
        pci = self.pci(gpu)
        held = FakeLicense(licensed, expires.isoformat() if expires else None)
        self._store.change(lambda state: with_gpu(state, pci, replace(state.gpus[pci], license=held)))

    def lose(self, gpu: GpuSelector) -> None:
        """Let a GPU fall off the bus (XID 79): every call on it answers GPU_IS_LOST."""
        pci = self.pci(gpu)
        self._store.change(lambda state: with_gpu(state, pci, replace(state.gpus[pci], lost=True)))

    def remove(self, gpu: GpuSelector) -> None:
        """Take a GPU out: NVML lists it no more, and the indexes behind it move."""
        pci = self.pci(gpu)
        self._store.change(lambda state: with_gpu(state, pci, replace(state.gpus[pci], present=False)))

    def restore(self, gpu: GpuSelector) -> None:
        """Undo ``lose`` and ``remove``."""
        pci = self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            return with_gpu(state, pci, replace(state.gpus[pci], present=True, lost=False))

        self._store.change(edit)

    def lift_memory_limits(self, gpu: GpuSelector) -> None:
        """Remove all memory limits of control groups on a GPU, even if calls that do the same have faults."""
        pci = self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            slot = state.gpus[pci]
            return with_gpu(state, pci, replace(slot, memory=replace(slot.memory, limits=())))

        self._store.change(edit)

    def replace_board(self, gpu: GpuSelector) -> str:
        """Put another board of the same kind into the slot; returns its UUID."""
        pci = self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            old = state.gpus[pci]
            new = replace(old, board=old.board + 1, lost=False, process_ids=(), mig=MigState()).after_load()
            return with_gpu(state, pci, replace(new, health=WELL))

        change_with_partitions(self.spec, self._store, edit)
        return self.uuid(pci)

    def set_minors(self, minors: Mapping[GpuSelector, int]) -> None:
        """Move minors, as resets and reboots do; raises ConfigError when two GPUs would share one."""
        moved = {self.pci(gpu): minor for gpu, minor in minors.items()}

        def edit(state: MachineState) -> MachineState:
            gpus = {pci: replace(gpu, minor=moved.get(pci, gpu.minor)) for pci, gpu in state.gpus.items()}
            if len({gpu.minor for gpu in gpus.values()}) != len(gpus):
                raise ConfigError("two GPUs cannot have the same minor", "name all GPUs whose minors move")
            return replace(state, gpus=gpus)

        change_with_partitions(self.spec, self._store, edit)

    def reset(self, gpu: GpuSelector) -> None:
        """Reset a GPU that nobody uses: a pending MIG mode comes true, and its instances are gone.

        Faults are gone, except memory that no reset repairs. Raises ConfigError while a process runs
        on it.
        """
        pci = self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            old = state.gpus[pci]
            if old.process_ids or old.mig.processes() or without_dead_groups(state, old).memory.clients:
                raise ConfigError(f"the GPU {pci} is in use", "end its processes before the reset")
            new = replace(old, lost=False, mig=old.mig.after_reset())
            return with_gpu(state, pci, new.after_load())

        change_with_partitions(self.spec, self._store, edit)

    def reboot(self) -> None:
        """Restart the machine: no process, no MIG instance, no mode and no handle is left.

        Functions have the drivers that they have after a boot, and all pretended control groups are gone.
        """
        self.change_node(rebooted)
        if root := self.state.pretend_cgroups:
            FakeCgroups(Path(root)).clear()

    def pretend_cgroups(self, root: Path) -> FakeCgroups:
        """Let folders below a root be the machine's control groups from now on, whatever this machine has."""
        root.mkdir(parents=True, exist_ok=True)
        self._store.change(lambda state: replace(state, pretend_cgroups=str(root.absolute())))
        return FakeCgroups(root.absolute())

    def count_memory(self, *, unit_bytes: int = 1, silent: bool = False) -> None:
        """Let the NVIDIA driver count memory in another way from now on; see Accounting."""
        self._store.change(lambda state: replace(state, accounting=Accounting(unit_bytes, silent)))

    def cuda(self, gpu: GpuSelector, cgroup: str, process_id: int | None = None) -> FakeCudaClient:
        """A process in a control group that has a CUDA context on a GPU, until it ends or its group goes.

        ``cgroup`` is as NVML takes it. NVML lists the process if its id is given. Raises CudaFailed.
        """
        return FakeCudaClient.begin(self.spec, self._store, self.pci(gpu), cgroup, process_id)

    def attach_driver_root(self, folder: Path, seen_at: Path | None = None) -> None:
        """Let the device nodes and capability files below a driver root follow the machine from now on.

        ``seen_at`` is where containers that change the machine see that folder.
        """
        roots = [str(folder.absolute()), *([str(seen_at)] if seen_at else [])]

        def edit(node: Node) -> Node:
            kernel, machine = node.kernel, node.machine
            known = tuple(dict.fromkeys((*kernel.device_roots, *roots)))
            lay_device_files(folder, node)
            if self.spec.product.mig is not None:
                write_capabilities(folder, machine)
                capable = tuple(dict.fromkeys((*machine.driver_roots, *roots)))
                machine = replace(machine, driver_roots=capable)
            return replace(node, kernel=replace(kernel, device_roots=known), machine=machine)

        self.change_node(edit)

    def attach_sysfs(self, root: Path) -> None:
        """Make the files below a root those of the machine's sysfs, and let them follow it from now on."""
        (root / PRETENDED).write_text(f"{self.spec.name}\n", encoding="utf-8")

        def edit(node: Node) -> Node:
            make_true(root, all_files(node))
            known = tuple(dict.fromkeys((*node.kernel.sysfs_roots, str(root.absolute()))))
            return node if known == node.kernel.sysfs_roots else _with_roots(node, known)

        self.change_node(edit)

    def node(self) -> Node:
        """The machine and its kernel, as they are now."""
        return node_now(self.spec, self._store)

    def change_node(self, edit: Callable[[Node], Node]) -> Node:
        """Change the machine, its kernel and the files that follow; what ``edit`` raises changes nothing."""
        return change_node(self.spec, self._store, edit)

    def open_function(self, pci: PciAddress) -> Hold:
        """Hold a function open, as a virtual machine does by vfio, till ``settle`` after its ``release``."""
        return self._store.holds.hold(pci)

    def settle(self) -> None:
        """Let the kernel do the writes that have waited for somebody who let go of a function."""
        settle(self.spec, self._store)

    def spoil_kernel(self, kind: FaultKind, words: str, error: int = 0, times: int | None = None) -> None:
        """Make writes to files with ``words`` in the path fail, hang, do nothing or kill; see KernelFault."""

        def edit(node: Node) -> Node:
            fault = KernelFault(node.kernel.next_number, words, kind, error, times)
            faults = (*node.kernel.faults, fault)
            return replace(node, kernel=replace(node.kernel, faults=faults, next_number=fault.number + 1))

        self.change_node(edit)

    def heal_kernel(self) -> None:
        """Remove all rules that spoil writes; those that hung are done."""
        self.change_node(lambda node: replace(node, kernel=replace(node.kernel, faults=())))
        self.settle()

    def driver_gone(self) -> None:
        """Unload the kernel driver: every call says DRIVER_NOT_LOADED, and all handles are void for good.

        MIG instances, compute modes, time-slices, memory limits and CUDA contexts go with it, and so does a
        MIG mode that does not last.
        """
        self.change_node(unloaded)

    def driver_back(self, version: str | None = None) -> None:
        """Load the kernel driver again, perhaps another version; it takes the GPUs that no driver has."""
        self.change_node(lambda node: loaded(node, version))

    def _add_fault(self, gpu: GpuSelector | None, rule: Fault) -> None:
        """Number a rule and aim it at the GPU; refuses one for a call that there is not."""
        if rule.call != ANY_CALL and rule.call not in NODE_CALLS and rule.call not in FAKE_GPU_CALLS:
            known = ", ".join(sorted(NODE_CALLS | FAKE_GPU_CALLS))
            raise ConfigError(f"there is no call {rule.call!r}", f"name {ANY_CALL} or one of {known}")
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            fault = replace(rule, number=state.next_fault, pci=pci)
            return replace(state, faults=(*state.faults, fault), next_fault=state.next_fault + 1)

        self._store.change(edit)


def _check_changes(call: str, calls: frozenset[str]) -> None:
    if call not in calls:
        raise ConfigError(f"the call {call!r} changes nothing", f"name one of {', '.join(sorted(calls))}")


def _with_roots(node: Node, sysfs_roots: tuple[str, ...]) -> Node:
    return replace(node, kernel=replace(node.kernel, sysfs_roots=sysfs_roots))
