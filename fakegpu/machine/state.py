"""The state of a fake machine, and where it is stored: in memory, or in a file that processes share."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from threading import Condition, Event, RLock
from typing import Protocol, TypeVar

from driver.errors import ConfigError
from driver.nvml.mig import MigProcess
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from fakegpu.fabric.state import FabricState
from fakegpu.health.state import NO_EVENTS, WELL, EventLog, GpuHealth
from fakegpu.machine.changes import Changes, FolderChanges, ReplacedFile, VersionChanges
from fakegpu.machine.documents import read_state, to_document
from fakegpu.machine.faults import CallFault, MpsFault
from fakegpu.machine.holds import FileHolds, Holds, MemoryHolds
from fakegpu.machine.mig_state import NO_MIG, MigState
from fakegpu.machine.spec import MachineSpec
from fakegpu.memory.state import EXACT, NO_MEMORY, Accounting, GpuMemory
from fakegpu.sysfs.state import KernelState
from fakegpu.use.state import IDLE, GpuUse

T = TypeVar("T")

_SCHEMA = 2

# How often a call that hangs checks whether its fault rule still exists: nothing wakes it.
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class FakeLicense:
    """Whether a vGPU has its license, and when it expires: ISO 8601 with a zone, None for never."""

    licensed: bool = True
    expires: str | None = None


_LICENSED = FakeLicense()


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of one slot and its GPU.

    ``board`` counts the boards that were in the slot before. ``present`` is whether NVML lists the GPU;
    a ``lost`` GPU fell off the bus (XID 79) and is still listed. ``time_slice`` is nvidia-smi's number:
    0 default, 1 short, 2 medium, 3 long. With ``persistence`` the driver keeps the GPU initialised while no
    process uses it.
    """

    minor: int
    board: int = 0
    present: bool = True
    lost: bool = False
    process_ids: tuple[int, ...] = ()
    mig: MigState = NO_MIG
    compute_mode: ComputeMode = "default"
    time_slice: int = 0
    license: FakeLicense = _LICENSED
    persistence: bool = False
    memory: GpuMemory = NO_MEMORY
    health: GpuHealth = WELL
    use: GpuUse = IDLE

    def mig_processes(self) -> tuple[MigProcess, ...]:
        """Which process uses which MIG instance, sorted by process and instance."""
        return tuple(sorted({*self.mig.processes(), *self.memory.mig_processes}, key=astuple))

    def after_load(self) -> GpuState:
        """The state after a reset or after loading the NVIDIA driver again, which both end all settings."""
        return replace(
            self,
            compute_mode="default",
            time_slice=0,
            persistence=False,
            memory=NO_MEMORY,
            health=self.health.after_load(),
            use=IDLE,
        )


@dataclass(frozen=True, slots=True)
class MachineState:
    """Everything on the machine that can change, except what its kernel remembers.

    ``session`` counts loads of the NVIDIA driver: handles from before the last load are not valid.
    ``driver_roots`` are the folders whose capability files are kept up to date. ``pretend_cgroups`` is the
    folder that replaces /sys/fs/cgroup, empty for the real one.
    """

    gpus: Mapping[PciAddress, GpuState]
    driver_version: str
    cuda_driver_version: str
    driver_loaded: bool = True
    session: int = 1
    faults: tuple[CallFault, ...] = ()
    next_fault: int = 1
    driver_roots: tuple[str, ...] = ()
    mps_faults: tuple[MpsFault, ...] = ()
    fabric: FabricState = field(default_factory=FabricState)
    pretend_cgroups: str = ""
    accounting: Accounting = EXACT
    events: EventLog = NO_EVENTS

    @classmethod
    def fresh(cls, spec: MachineSpec) -> MachineState:
        """The machine as its file describes it."""
        gpus = {
            slot.pci: GpuState(
                slot.minor,
                mig=MigState(slot.mig_enabled, slot.mig_enabled),
                license=FakeLicense(spec.product.licensed),
            )
            for slot in spec.slots
        }
        fabric = FabricState(shared=spec.fabric_manager is not None and spec.fabric_manager.shared)
        return cls(gpus, spec.driver_version, spec.cuda_driver_version, fabric=fabric)

    def listed(self) -> list[PciAddress]:
        """The GPUs that NVML lists. It numbers them by their PCI addresses."""
        return sorted(pci for pci, gpu in self.gpus.items() if gpu.present)

    def to_json(self, machine: str) -> str:
        """The state as the text of a state file."""
        document = {"schema": _SCHEMA, "machine": machine, **to_document(self, _USUAL)}
        if "events" in document:
            document["told"] = document.pop("events")
        # At the end, since they are long.
        del document["gpus"]
        document["gpus"] = {str(pci): to_document(gpu, _USUAL_GPU) for pci, gpu in sorted(self.gpus.items())}
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, machine: str) -> MachineState:
        """Read the text of a state file; raises ValueError for other text and for other machines."""
        document = json.loads(text)
        if isinstance(document, dict) and "told" in document:
            document["events"] = document.pop("told")
        return read_state(cls, document, _SCHEMA, machine, "machine")


# Fields with these values are left out of the file, so that it shows what has been changed.
_USUAL = {"fabric": FabricState(), "pretend_cgroups": "", "accounting": EXACT, "events": NO_EVENTS}
_USUAL_GPU = {"license": _LICENSED, "persistence": False, "memory": NO_MEMORY, "health": WELL, "use": IDLE}


Both = tuple[MachineState, KernelState]
"""The state of a machine, and of its kernel."""


class StateStore(Protocol):
    """Where the state of one machine is kept; ``holds`` says which of its functions are open."""

    holds: Holds

    def read(self) -> MachineState:
        """The state now; cheap if it has not changed."""
        ...

    def read_kernel(self, spec: MachineSpec) -> KernelState:
        """The state of the kernel now; cheap if it has not changed."""
        ...

    def change(self, edit: Callable[[MachineState], MachineState]) -> MachineState:
        """Replace the state by an edit of it, atomically; returns the new state."""
        ...

    def change_both(self, spec: MachineSpec, edit: Callable[[MachineState, KernelState], Both]) -> Both:
        """Replace the states of machine and kernel; one that stays the same object is not written."""
        ...

    def wait(self) -> None:
        """Wait until the state may have changed."""
        ...

    def changes(self) -> Changes:
        """Something that waits for changes of the state from now on."""
        ...


class MemoryStore:
    """The state of a machine that lives in this process alone."""

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self._kernel: KernelState | None = None
        self._changed = Condition(RLock())
        self._version = 0
        self.holds: Holds = MemoryHolds()

    def read(self) -> MachineState:
        """The state now."""
        return self._state

    def read_kernel(self, spec: MachineSpec) -> KernelState:
        """The state of the kernel now."""
        if self._kernel is None:
            self._kernel = KernelState.fresh(spec)
        return self._kernel

    def change(self, edit: Callable[[MachineState], MachineState]) -> MachineState:
        """Replace the state and wake all threads that wait."""
        with self._changed:
            self._state = edit(self._state)
            self._version += 1
            self._changed.notify_all()
            return self._state

    def change_both(self, spec: MachineSpec, edit: Callable[[MachineState, KernelState], Both]) -> Both:
        """Replace both and wake all threads that wait."""
        with self._changed:
            self._state, self._kernel = edit(self._state, self.read_kernel(spec))
            self._version += 1
            self._changed.notify_all()
            return self._state, self._kernel

    def wait(self) -> None:
        """Wait for a change, but only a short while: a change may have come just before."""
        with self._changed:
            self._changed.wait(_POLL_SECONDS)

    def changes(self) -> Changes:
        """The changes from now on; a wait ends with the change."""
        return VersionChanges(self._changed, lambda: self._version)


class FileStore:
    """The state in a file that several processes share; the state of the kernel is in a file beside it."""

    def __init__(self, path: Path, spec: MachineSpec) -> None:
        """Open the state file, or make a fresh one; raises ConfigError if it cannot be used."""
        self._path = path
        self._machine = spec.name
        self._lock = RLock()
        self._file = ReplacedFile(path, lambda text: MachineState.from_json(text, spec.name))
        beside = path.with_name(f"{path.name}.kernel")
        self._kernel = ReplacedFile(beside, lambda text: KernelState.from_json(text, spec.name))
        self.holds: Holds = FileHolds(path.with_name(f"{path.name}.open"))
        try:
            with self._exclusively():
                if not path.exists():
                    # A kernel file without its machine was left by one whose state file was removed.
                    beside.unlink(missing_ok=True)
                    self._file.replace(MachineState.fresh(spec).to_json(self._machine))
                self.read()
        except OSError as error:
            raise ConfigError(
                f"cannot use the state file {path}: {error.strerror}", "use a file in a writable folder"
            ) from error

    def read(self) -> MachineState:
        """The state now, read again only if the file was replaced; raises ConfigError if it is broken."""
        try:
            return self._read(self._file)
        except FileNotFoundError as error:
            raise ConfigError(
                f"the state file {self._path} was removed", "restart everything that uses it"
            ) from error

    def read_kernel(self, spec: MachineSpec) -> KernelState:
        """The state of the kernel now; without a file it is that after a boot."""
        try:
            return self._read(self._kernel)
        except FileNotFoundError:
            return KernelState.fresh(spec)

    def change(self, edit: Callable[[MachineState], MachineState]) -> MachineState:
        """Replace the state; processes take turns."""
        with self._exclusively():
            state = edit(self.read())
            self._file.replace(state.to_json(self._machine))
            return self.read()

    def change_both(self, spec: MachineSpec, edit: Callable[[MachineState, KernelState], Both]) -> Both:
        """Replace both; processes take turns."""
        with self._exclusively():
            old, old_kernel = self.read(), self.read_kernel(spec)
            state, kernel = edit(old, old_kernel)
            if kernel is not old_kernel:
                self._kernel.replace(kernel.to_json(self._machine))
            if state is not old:
                self._file.replace(state.to_json(self._machine))
            return state, kernel

    def wait(self) -> None:
        """Wait for a short while."""
        Event().wait(_POLL_SECONDS)

    def changes(self) -> Changes:
        """The changes from now on, by any process; a wait ends when any file of the folder is replaced."""
        return FolderChanges(self._path.parent)

    def _read(self, file: ReplacedFile[T]) -> T:
        with self._lock:
            try:
                return file.read()
            except ValueError as error:
                raise ConfigError(
                    f"cannot use the state file {file.path}: {error}",
                    f"remove it, or use the machine that it was made for (now {self._machine})",
                ) from error

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        # The lock is a file of its own, since the state file is replaced by rename: two processes could hold
        # locks on two different files.
        with self._lock, self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
            # The kernel releases the lock when the file is closed, so also when the process is killed.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def with_gpu(state: MachineState, pci: PciAddress, gpu: GpuState) -> MachineState:
    """The state with one slot replaced."""
    return replace(state, gpus={**state.gpus, pci: gpu})
