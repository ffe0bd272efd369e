"""What changes on a fake machine, and where it is kept: in memory, or in a file that processes share."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Condition, Event, RLock
from typing import Protocol, TypeVar

from driver.errors import ConfigError
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from fakegpu.fabric.state import FabricState
from fakegpu.health.state import NO_EVENTS, WELL, EventLog, GpuHealth
from fakegpu.machine.changes import Changes, FolderChanges, ReplacedFile, VersionChanges
from fakegpu.machine.holds import FileHolds, Holds, MemoryHolds
from fakegpu.machine.mig_state import NO_MIG, MigState
from fakegpu.machine.spec import MachineSpec
from fakegpu.memory.state import EXACT, NO_MEMORY, Accounting, GpuMemory
from fakegpu.mps.faults import MpsFault
from fakegpu.nvml.call_faults import Fault
from fakegpu.sysfs.state import KernelState
from fakegpu.use.state import IDLE, GpuUse

T = TypeVar("T")

_SCHEMA = 2

# Replacing a file notifies nobody: a hung call checks this often whether its rule is gone.
_LOOK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class FakeLicense:
    """Whether a vGPU has its license, and when that ends: ISO 8601 with a zone, None for never."""

    licensed: bool = True
    expires: str | None = None

    @classmethod
    def from_document(cls, document: object) -> FakeLicense:
        """Read from a state file; raises TypeError when it is something else."""
        if not isinstance(document, dict):
            raise TypeError("license is no mapping")
        return cls(**document)


_LICENSED = FakeLicense()


@dataclass(frozen=True, slots=True)
class GpuState:
    """One slot now: ``board`` counts the boards that sat there, ``lost`` is fallen off the bus (XID 79).

    ``time_slice`` is nvidia-smi's number: 0 default, 1 short, 2 medium, 3 long. With ``persistence``
    the driver keeps the GPU initialised.
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

    def after_load(self) -> GpuState:
        """The state after a reset or a new load of the driver.

        No mode, no time-slice, no memory limit and no CUDA context outlives them.
        """
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
    """Everything that can change. ``session`` counts loads of the kernel driver: old handles are void.

    ``driver_roots`` are the folders in which the capability files follow the instances. ``pretend_cgroups``
    is the folder that stands for /sys/fs/cgroup, empty where the real one counts.
    """

    gpus: Mapping[PciAddress, GpuState]
    driver_version: str
    cuda_driver_version: str
    driver_loaded: bool = True
    session: int = 1
    faults: tuple[Fault, ...] = ()
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
        """The GPUs that NVML lists, in the order of their indexes."""
        return sorted(pci for pci, gpu in self.gpus.items() if gpu.present)

    def to_json(self, machine: str) -> str:
        """The state as the text of a state file."""
        document: dict[str, object] = {"schema": _SCHEMA, "machine": machine}
        document |= {
            "driver_version": self.driver_version,
            "cuda_driver_version": self.cuda_driver_version,
            "driver_loaded": self.driver_loaded,
            "session": self.session,
            "next_fault": self.next_fault,
            "driver_roots": self.driver_roots,
            "gpus": {str(pci): _gpu_document(gpu) for pci, gpu in sorted(self.gpus.items())},
            # What is usual is left out, so that the file shows what somebody has changed.
            **({} if self.fabric == FabricState() else {"fabric": self.fabric.to_document()}),
            **({"pretend_cgroups": self.pretend_cgroups} if self.pretend_cgroups else {}),
            **({} if self.accounting == EXACT else {"accounting": asdict(self.accounting)}),
            **({} if self.events == NO_EVENTS else {"told": self.events.to_document()}),
            "mps_faults": [fault.to_document() for fault in self.mps_faults],
            "faults": [fault.to_document() for fault in self.faults],
        }
        return json.dumps(document, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, machine: str) -> MachineState:
        """Read a state file's text; raises ValueError when it is none, or another machine's."""
        document = json.loads(text)
        try:
            head = (document.pop("schema"), document.pop("machine"))
            gpus = {PciAddress.parse(pci): _gpu(gpu) for pci, gpu in document.pop("gpus").items()}
            faults = tuple(Fault.from_document(fault) for fault in document.pop("faults"))
            mps = tuple(MpsFault.from_document(fault) for fault in document.pop("mps_faults", ()))
            roots = tuple(document.pop("driver_roots"))
            fabric = FabricState.from_document(document.pop("fabric", {}))
            document |= {"driver_roots": roots, "mps_faults": mps, "fabric": fabric}
            document["accounting"] = Accounting(**document.pop("accounting", {}))
            told = document.pop("told", None)
            document["events"] = NO_EVENTS if told is None else EventLog.from_document(told)
            state = cls(gpus=gpus, faults=faults, **document)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no state of a fake machine ({error})") from error
        if head != (_SCHEMA, machine):
            raise ValueError(f"it holds schema {head[0]} of machine {head[1]!r}")
        return state


_ONLY_WHERE_USED = {"memory": NO_MEMORY, "health": WELL, "use": IDLE}


def _gpu_document(gpu: GpuState) -> dict[str, object]:
    """The slot as JSON, without what is usual."""
    document = asdict(gpu)
    if gpu.license == _LICENSED:
        del document["license"]
    if not gpu.persistence:
        del document["persistence"]
    for name, usual in _ONLY_WHERE_USED.items():
        if getattr(gpu, name) == usual:
            del document[name]
    return document


def _gpu(document: dict[str, object]) -> GpuState:
    pids, mig = document.pop("process_ids"), document.pop("mig")
    held = FakeLicense.from_document(document.pop("license")) if "license" in document else _LICENSED
    if not isinstance(pids, list) or not isinstance(mig, dict):
        raise TypeError("process_ids is no list, or mig no mapping")
    state = MigState.from_document(mig)
    memory = GpuMemory.from_document(document.pop("memory")) if "memory" in document else NO_MEMORY  # type: ignore[arg-type]  # TypeError if not
    document["health"] = GpuHealth.from_document(document["health"]) if "health" in document else WELL
    document["use"] = GpuUse.from_document(document["use"]) if "use" in document else IDLE
    return GpuState(process_ids=tuple(pids), mig=state, license=held, memory=memory, **document)  # type: ignore[arg-type]  # TypeError if not


Both = tuple["MachineState", KernelState]
"""What changes on a machine, and what its kernel remembers."""


class StateStore(Protocol):
    """Where the state of one machine is kept, and who has its functions open."""

    holds: Holds

    def read(self) -> MachineState:
        """The state now; cheap when it has not changed."""
        ...

    def read_kernel(self, spec: MachineSpec) -> KernelState:
        """What the kernel remembers now; cheap when it has not changed."""
        ...

    def change(self, edit: Callable[[MachineState], MachineState]) -> MachineState:
        """Replace the state by an edit of it, atomically; returns the new state."""
        ...

    def change_both(self, spec: MachineSpec, edit: Callable[[MachineState, KernelState], Both]) -> Both:
        """The same for the state and what the kernel remembers; what stays the same object is not written."""
        ...

    def wait(self) -> None:
        """Wait until the state may have changed."""
        ...

    def changes(self) -> Changes:
        """The changes of the state from now on, to be waited for."""
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
        """What the kernel remembers now."""
        if self._kernel is None:
            self._kernel = KernelState.fresh(spec)
        return self._kernel

    def change(self, edit: Callable[[MachineState], MachineState]) -> MachineState:
        """Replace the state and wake all that wait."""
        with self._changed:
            self._state = edit(self._state)
            self._version += 1
            self._changed.notify_all()
            return self._state

    def change_both(self, spec: MachineSpec, edit: Callable[[MachineState, KernelState], Both]) -> Both:
        """Replace both and wake all that wait."""
        with self._changed:
            self._state, self._kernel = edit(self._state, self.read_kernel(spec))
            self._version += 1
            self._changed.notify_all()
            return self._state, self._kernel

    def wait(self) -> None:
        """Wait for a change; a change just before is noticed after a short while."""
        with self._changed:
            self._changed.wait(_LOOK_AGAIN_SECONDS)

    def changes(self) -> Changes:
        """The changes from now on; a wait ends with the change."""
        return VersionChanges(self._changed, lambda: self._version)


class FileStore:
    """The state in a file that several processes share: replaced by rename, under a lock beside it.

    What the kernel remembers is in a file beside it.
    """

    def __init__(self, path: Path, spec: MachineSpec) -> None:
        """Open the state file, made afresh where there is none; raises ConfigError when it is unusable."""
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
                    beside.unlink(missing_ok=True)
                    self._file.replace(MachineState.fresh(spec).to_json(self._machine))
                self.read()
        except OSError as error:
            raise ConfigError(
                f"the state file {path} cannot be used: {error.strerror}", "name a file in a writable folder"
            ) from error

    def read(self) -> MachineState:
        """The state now, read again only when the file was replaced; raises ConfigError when it is broken."""
        try:
            return self._read(self._file)
        except FileNotFoundError as error:
            raise ConfigError(
                f"the state file {self._path} was removed", "start all that use it again"
            ) from error

    def read_kernel(self, spec: MachineSpec) -> KernelState:
        """What the kernel remembers now; a machine without a record is as after its boot."""
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
        Event().wait(_LOOK_AGAIN_SECONDS)

    def changes(self) -> Changes:
        """The changes from now on, of whatever process; a wait ends when a file of the folder is replaced."""
        return FolderChanges(self._path.parent)

    def _read(self, file: ReplacedFile[T]) -> T:
        with self._lock:
            try:
                return file.read()
            except ValueError as error:
                raise ConfigError(
                    f"the state file {file.path} cannot be used: {error}",
                    f"remove it, or start with the machine that it was made for (now {self._machine})",
                ) from error

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        with self._lock, self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def with_gpu(state: MachineState, pci: PciAddress, gpu: GpuState) -> MachineState:
    """The state with one slot replaced."""
    return replace(state, gpus={**state.gpus, pci: gpu})
