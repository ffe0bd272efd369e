"""What a test or a demo does to a fake machine while other processes use it."""

from __future__ import annotations

import os
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
from fakegpu.machine import faults
from fakegpu.machine.capabilities import write_capabilities
from fakegpu.machine.cgroups import FakeCgroups, without_dead_groups
from fakegpu.machine.controls import GpuSelector
from fakegpu.machine.holds import Hold
from fakegpu.machine.mig_state import MigState
from fakegpu.machine.spec import MachineSpec, load_machine, shipped_file
from fakegpu.machine.state import (
    FakeLicense,
    FileStore,
    GpuState,
    MachineState,
    MemoryStore,
    StateStore,
    with_gpu,
)
from fakegpu.memory.calls import MEMORY_CHANGES
from fakegpu.memory.cuda import FakeCudaClient, Place, end_dead_clients
from fakegpu.memory.state import Accounting
from fakegpu.nvml.fake_nvml import FakeNvml
from fakegpu.nvml.mig_calls import MIG_CHANGES
from fakegpu.nvml.partitions_shown import change_with_partitions
from fakegpu.nvml.session import FAKE_GPU_CALLS
from fakegpu.nvml.sharing_calls import SHARING_CHANGES
from fakegpu.sysfs import tree, whole_machine
from fakegpu.sysfs.binding import Node
from fakegpu.sysfs.change import change_node, lay_device_files, node_now
from fakegpu.use.pretended_use import PretendedUse

_PREFIX = "fake:"

_CAN_LIE = SHARING_CHANGES | MEMORY_CHANGES | {faults.KERNEL_LAUNCH}
_CALLS = faults.CUDA_CALLS.union(NODE_CALLS, FAKE_GPU_CALLS)


class FakeMachine(FaultInjection, PretendedUse):
    """A machine, its state, and methods that change it; ``nvml`` shows it as a process would see it."""

    def __init__(self, spec: MachineSpec, store: StateStore, flag: str | None = None) -> None:
        """``flag`` is the text with which other processes open the same machine; None if they cannot."""
        super().__init__(spec, store)
        self.flag = flag

    @classmethod
    def open(cls, text: str) -> FakeMachine:
        """Open ``[fake:]MACHINE[@STATE]``: a shipped machine's name or a file, and a shared state file.

        Without STATE the machine lives in the returned object alone. Raises ConfigError.
        """
        machine, _, state = text.removeprefix(_PREFIX).partition("@")
        spec = load_machine(machine)
        if state:
            named = machine if shipped_file(machine) else Path(machine).absolute()
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

    def fail(
        self,
        call: str = faults.ANY,
        gpu: GpuSelector | None = None,
        code: int = Code.UNKNOWN,
        times: int | None = None,
    ) -> None:
        """Make calls fail with a return code.

        ``call`` is a method of driver.nvml.api or a function of CUDA; ``*`` is any of NVML.
        """
        self._add_fault(gpu, faults.CallFault(0, call, None, code, times))

    def fail_after(
        self, call: str, gpu: GpuSelector | None = None, code: int = Code.UNKNOWN, times: int | None = None
    ) -> None:
        """Make calls that change a GPU fail after they have done their work; ConfigError for other calls."""
        _check_changes(call, MIG_CHANGES | _CAN_LIE)
        self._add_fault(gpu, faults.CallFault(0, call, None, code, times, after=True))

    def lie(self, call: str, gpu: GpuSelector | None = None, times: int | None = None) -> None:
        """Make calls that set something of a GPU succeed but do nothing; ConfigError for other calls.

        Kernels of CUDA compute wrongly if cuLaunchKernel lies.
        """
        _check_changes(call, _CAN_LIE)
        self._add_fault(gpu, faults.CallFault(0, call, None, None, times, lie=True))

    def not_supported(self, call: str, gpu: GpuSelector | None = None) -> None:
        """Make calls answer NOT_SUPPORTED."""
        self._add_fault(gpu, faults.CallFault(0, call, None, Code.NOT_SUPPORTED))

    def hang(self, call: str = faults.ANY, gpu: GpuSelector | None = None) -> None:
        """Make calls hang until ``heal``."""
        self._add_fault(gpu, faults.CallFault(0, call, None, None))

    def slow(self, seconds: float, call: str = faults.ANY, gpu: GpuSelector | None = None) -> None:
        """Make calls take longer by so many seconds, until ``heal``."""
        self._add_fault(gpu, faults.CallFault(0, call, None, None, seconds=seconds))

    def heal(self, call: str | None = None, gpu: GpuSelector | None = None) -> None:
        """Remove the rules for a call and a GPU; a parameter that is left out means all."""
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            kept = (f for f in state.faults if call not in (None, f.call) or pci not in (None, f.pci))
            return replace(state, faults=tuple(kept))

        self._store.change(edit)

    def spoil_mps(
        self,
        kind: faults.MpsFaultKind,
        command: str = faults.ANY,
        words: str = "",
        gpu: GpuSelector | None = None,
        times: int | None = None,
    ) -> None:
        """Make the control daemons of MPS on a GPU hang, die, lie or refuse; see MpsFault."""
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            fault = faults.MpsFault(state.next_fault, kind, command, pci, words, times)
            return replace(state, mps_faults=(*state.mps_faults, fault), next_fault=state.next_fault + 1)

        self._store.change(edit)

    def heal_mps(self) -> None:
        """Remove all rules that spoil MPS daemons; a daemon that hangs goes on with its command."""
        self._store.change(lambda state: replace(state, mps_faults=()))

    def hit_mps_fault(self, command: str, gpus: tuple[PciAddress, ...]) -> faults.MpsFault | None:
        """The oldest rule that spoils a command of a daemon for these GPUs; counts a hit of it."""
        found: list[faults.MpsFault] = []

        def edit(state: MachineState) -> MachineState:
            found.extend([fault for fault in state.mps_faults if fault.hits(command, gpus)][:1])
            number = found[0].number if found else 0
            return replace(state, mps_faults=faults.after_hit(state.mps_faults, number))

        # Most commands hit no rule: look before taking the lock of the state.
        if any(fault.hits(command, gpus) for fault in self.state.mps_faults):
            self._store.change(edit)
        return found[0] if found else None

    def wait(self) -> None:
        """Wait until the machine may have changed."""
        self._store.wait()

    def set_license(self, gpu: GpuSelector, *, licensed: bool, expires: datetime | None = None) -> None:
        """Give a vGPU its license, until a time with a zone or for ever, or take it away."""
        held = FakeLicense(licensed, expires.isoformat() if expires else None)
        self._change_gpu(gpu, lambda old: replace(old, license=held))

    def lose(self, gpu: GpuSelector) -> None:
        """Let a GPU fall off the bus (XID 79): every call on it answers GPU_IS_LOST."""
        self._change_gpu(gpu, lambda old: replace(old, lost=True))

    def remove(self, gpu: GpuSelector) -> None:
        """Take a GPU out: NVML no longer lists it, and the indexes of the GPUs after it move."""
        self._change_gpu(gpu, lambda old: replace(old, present=False))

    def restore(self, gpu: GpuSelector) -> None:
        """Undo ``lose`` and ``remove``."""
        self._change_gpu(gpu, lambda old: replace(old, present=True, lost=False))

    def lift_memory_limits(self, gpu: GpuSelector) -> None:
        """Remove all memory limits of control groups on a GPU, even if the calls for that have faults."""
        self._change_gpu(gpu, lambda old: replace(old, memory=replace(old.memory, limits=())))

    def replace_board(self, gpu: GpuSelector) -> str:
        """Put another board of the same kind into the slot; returns its UUID."""
        pci = self.pci(gpu)

        def edit(old: GpuState) -> GpuState:
            new = replace(old, board=old.board + 1, lost=False, process_ids=(), mig=MigState()).after_load()
            return replace(new, health=WELL)

        self._change_partitions(pci, edit)
        return self.uuid(pci)

    def set_minors(self, minors: Mapping[GpuSelector, int]) -> None:
        """Change minors, as resets and reboots do; raises ConfigError if two GPUs would share one."""
        moved = {self.pci(gpu): minor for gpu, minor in minors.items()}

        def edit(state: MachineState) -> MachineState:
            gpus = {pci: replace(gpu, minor=moved.get(pci, gpu.minor)) for pci, gpu in state.gpus.items()}
            if len({gpu.minor for gpu in gpus.values()}) != len(gpus):
                raise ConfigError("two GPUs cannot have the same minor", "name all GPUs whose minors move")
            return replace(state, gpus=gpus)

        change_with_partitions(self.spec, self._store, edit)

    def reset(self, gpu: GpuSelector) -> None:
        """Reset a GPU that no process uses: a pending MIG mode takes effect, and MIG instances are gone.

        Health problems end, except memory that no reset repairs. Raises ConfigError while a process uses the
        GPU.
        """
        pci = self.pci(gpu)
        end_dead_clients(self._store)

        def edit(old: GpuState) -> GpuState:
            if old.process_ids or old.mig.processes() or without_dead_groups(self.state, old).memory.clients:
                raise ConfigError(f"the GPU {pci} is in use", "end its processes before the reset")
            return replace(old, lost=False, mig=old.mig.after_reset()).after_load()

        self._change_partitions(pci, edit)

    def reboot(self) -> None:
        """Restart the machine: no process, no MIG instance, no mode and no handle is left.

        Functions have the drivers that they have after a boot, and all pretended control groups are gone.
        """
        self.change_node(whole_machine.rebooted)
        if root := self.state.pretend_cgroups:
            FakeCgroups(Path(root)).clear()

    def pretend_cgroups(self, root: Path) -> FakeCgroups:
        """From now on, folders below a root are the machine's control groups, not those of the kernel."""
        root.mkdir(parents=True, exist_ok=True)
        self._store.change(lambda state: replace(state, pretend_cgroups=str(root.absolute())))
        return FakeCgroups(root.absolute())

    def stop_pretending_cgroups(self) -> None:
        """From now on, the kernel's control groups are those of the machine again.

        What is known of pretended groups that were removed is forgotten.
        """

        def edit(state: MachineState) -> MachineState:
            gpus = {pci: without_dead_groups(state, gpu) for pci, gpu in state.gpus.items()}
            return replace(state, gpus=gpus, pretend_cgroups="")

        self._store.change(edit)

    def count_memory(self, *, unit_bytes: int = 1, silent: bool = False) -> None:
        """Make the NVIDIA driver count memory in another way from now on; see Accounting."""
        self._store.change(lambda state: replace(state, accounting=Accounting(unit_bytes, silent)))

    def cuda(self, gpu: GpuSelector, cgroup: str, process_id: int | None = None) -> FakeCudaClient:
        """Start a process in a control group with a CUDA context on a GPU; raises CudaFailed.

        ``cgroup`` is a path below /sys/fs/cgroup, as NVML takes it. NVML lists the process if its id is
        given. The context ends with ``end``, or when its group is removed.
        """
        return FakeCudaClient.begin(self.spec, self._store, Place(self.pci(gpu)), cgroup, process_id)

    def cuda_at(self, place: Place, cgroup: str) -> FakeCudaClient:
        """Start a context of this process on a GPU or a MIG device, which ends with it; raises CudaFailed."""
        end_dead_clients(self._store)
        return FakeCudaClient.begin(self.spec, self._store, place, cgroup, os.getpid(), dies=True)

    def attach_driver_root(self, folder: Path, seen_at: Path | None = None) -> None:
        """Keep the device nodes and capability files below a driver root up to date from now on.

        ``seen_at`` is where that folder is in containers whose processes change the machine.
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
        """Make the files below a root those of the machine's sysfs, and keep them up to date from now on."""
        (root / tree.PRETENDED).write_text(f"{self.spec.name}\n", encoding="utf-8")

        def edit(node: Node) -> Node:
            known = node.kernel.sysfs_roots
            # Every change is made below the known roots at once, so their files are right already. The same
            # object means that nothing changed, so the state file is not written again.
            if (path := str(root.absolute())) in known and (root / tree.DEVICES).is_dir():
                return node
            tree.show(root, tree.all_files(node))
            known = tuple(dict.fromkeys((*known, path)))
            return replace(node, kernel=replace(node.kernel, sysfs_roots=known))

        self.change_node(edit)

    def node(self) -> Node:
        """The machine and its kernel, as they are now."""
        return node_now(self.spec, self._store)

    def change_node(self, edit: Callable[[Node], Node]) -> Node:
        """Change the machine, its kernel and their files; if ``edit`` raises, nothing changes."""
        return change_node(self.spec, self._store, edit)

    def open_function(self, pci: PciAddress) -> Hold:
        """Hold a PCI function open, as a virtual machine does through vfio.

        After ``release``, ``settle`` lets the kernel do what waited for it.
        """
        return self._store.holds.hold(pci)

    def spoil_kernel(
        self, kind: faults.KernelFaultKind, words: str, error: int = 0, times: int | None = None
    ) -> None:
        """Make writes to files with ``words`` in the path fail, hang, do nothing or kill; see KernelFault."""

        def edit(node: Node) -> Node:
            old = node.kernel
            fault = faults.KernelFault(old.next_number, words, kind, error, times)
            kernel = replace(old, faults=(*old.faults, fault), next_number=fault.number + 1)
            return replace(node, kernel=kernel)

        self.change_node(edit)

    def heal_kernel(self) -> None:
        """Remove all rules that spoil writes; the writes that hung are executed."""
        self.change_node(lambda node: replace(node, kernel=replace(node.kernel, faults=())))
        self.settle()

    def driver_gone(self) -> None:
        """Unload the NVIDIA driver: calls fail with DRIVER_NOT_LOADED, and old handles are never valid again.

        MIG instances, compute modes, time-slices, memory limits and CUDA contexts end with it. So does MIG
        mode, except where it lasts over a reboot.
        """
        self.change_node(whole_machine.unloaded)

    def driver_back(self, version: str | None = None) -> None:
        """Load the NVIDIA driver again, or another version; it binds the GPUs that have no driver."""
        self.change_node(lambda node: whole_machine.loaded(node, version))

    def _change_partitions(self, pci: PciAddress, edit: Callable[[GpuState], GpuState]) -> None:
        """Change a GPU, and the files that show its partitions."""
        change_with_partitions(
            self.spec, self._store, lambda state: with_gpu(state, pci, edit(state.gpus[pci]))
        )

    def _add_fault(self, gpu: GpuSelector | None, rule: faults.CallFault) -> None:
        """Add a rule for a GPU, with a number of its own; raises ConfigError for an unknown call."""
        if rule.call != faults.ANY and rule.call not in _CALLS:
            known = ", ".join(sorted(_CALLS))
            raise ConfigError(f"there is no call {rule.call!r}", f"name {faults.ANY} or one of {known}")
        pci = None if gpu is None else self.pci(gpu)

        def edit(state: MachineState) -> MachineState:
            fault = replace(rule, number=state.next_fault, pci=pci)
            return replace(state, faults=(*state.faults, fault), next_fault=state.next_fault + 1)

        self._store.change(edit)


def _check_changes(call: str, calls: frozenset[str]) -> None:
    if call not in calls:
        raise ConfigError(f"the call {call!r} changes nothing", f"name one of {', '.join(sorted(calls))}")
