"""Reads NVML and sysfs into an Inventory, one worker per GPU, so that a broken GPU does not hide others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

from driver.errors import NvmlError
from driver.fabric.api import FabricManager
from driver.fabric.seen import NO_FABRIC, KnownFabric
from driver.hardware import pci as sysfs
from driver.hardware.call_effects import FABRIC_PARTITIONS, OF_THE_DRIVER
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER
from driver.hardware.gate import Gate, LetGo
from driver.hardware.gpu import NOT_ASKED, Gpu, Inventory, Problem, UnreadGpu, unheard
from driver.hardware.gpu_walk import FABRIC_NOT_STARTED, GpuWalk, problem_of, unread_gpus
from driver.hardware.mig_walk import KnownProfiles
from driver.hardware.pci_view import pci_view
from driver.nvml.api import (
    DriverNotLoaded,
    NotFound,
    NotSupported,
    Nvml,
    NvmlCallFailed,
    NvmlDevice,
    NvmlTimeout,
    SessionLost,
)
from driver.nvml.deadline import Guard, Watch, Workers
from driver.nvml.health.calls import EventSet
from driver.nvml.pci_address import PciAddress

T = TypeVar("T")

NODE_LANE = "the node"
_EVENTS_WORKER = "the node's events"
_COUNT = "nvmlDeviceGetCount_v2"
_ENTER_SECONDS = 10.0
_LET_GO_SECONDS = 15.0
"""How long calls under way are waited for: longer than one that hangs is."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which board sits at a PCI address, and the N of its /dev/nvidiaN."""

    uuid: str
    minor: int


class Discovery:
    """What is on this node. Safe to use from several threads; every NVML call runs under ``guard``.

    It holds one NVML session, begun by the first call that needs it and begun again when the NVIDIA
    driver went away, came back or changed its version. While a session is held the kernel driver
    cannot be unloaded, nor a GPU be taken from it: ``close`` ends the session, and the next call begins
    another; within ``let_go`` none is begun.
    ``sysfs_root`` is where sysfs is mounted, ``/sys`` on a real node. ``fabric`` gives the partitions of the
    NVLink fabric, None where they are not needed. ``readers`` have the workers of ``read``.
    """

    def __init__(
        self,
        nvml: Nvml,
        sysfs_root: Path,
        guard: Guard,
        fabric: FabricManager | None = None,
        readers: Guard | None = None,
    ) -> None:
        self._nvml = nvml
        self._sysfs_root = sysfs_root
        self._guard = guard
        self._readers = readers or guard
        self._fabric = None if fabric is None else KnownFabric(fabric)
        self._lock = Lock()
        self._gate = Gate()
        self._session = 0
        self._open = False
        self._handles_taken = False
        self._offered: KnownProfiles = {}
        self._workers = Workers(guard)
        self._last: Mapping[PciAddress, Gpu] = {}
        self._last_driver: str | None = None
        self._last_cuda: str | None = None

    def snapshot(self) -> Inventory:
        """Look at everything. What a GPU does not tell now is as it last was, with that problem.

        Raises DriverNotLoaded where there is no NVIDIA driver, and another NvmlError when NVML as a
        whole cannot be asked; then nothing is known about any GPU. LetGo, at once, while no session may be
        begun: that says nothing about the GPUs.
        """
        return self._in_session(self._look, wait_seconds=0.0)

    def without_driver(self) -> Inventory:
        """What sysfs alone tells, for a node on which ``snapshot`` finds no NVIDIA driver."""
        return Inventory(pci=pci_view(self._sysfs_root))

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """Ask NVML again which board is at an address; raises NvmlError, NotFound where there is none."""

        def job(device: NvmlDevice, watch: Watch) -> GpuIdentity:
            return GpuIdentity(watch("uuid", device.uuid), watch("minor", device.minor))

        return self.on_gpu(pci, job)

    def mig_enabled(self, pci: PciAddress) -> bool:
        """Whether the GPU's MIG mode is on now; raises NvmlError."""

        def job(device: NvmlDevice, watch: Watch) -> bool:
            try:
                return watch("mig_mode", device.mig_mode).enabled
            except NotSupported:
                return False

        return self.on_gpu(pci, job)

    def process_ids(self, pci: PciAddress) -> tuple[int, ...]:
        """The processes that use the GPU now, sorted; raises NvmlError, NotSupported where it cannot tell."""

        return self.on_gpu(pci, lambda device, watch: watch("process_ids", device.process_ids))

    def on_gpu(self, pci: PciAddress, job: Callable[[NvmlDevice, Watch], T]) -> T:
        """Do a job with one GPU's handle, in its worker: jobs of one GPU run one after the other.

        The job makes every call through the watch. It may be done twice, when the session turns out to be
        void on the way. Raises what the job raises, and NvmlError.
        """

        def with_device(watch: Watch) -> T:
            patient = not self._handles_taken
            try:
                device = watch("device_by_pci", lambda: self._nvml.device_by_pci(pci), patient=patient)
            except NotFound:
                self._guard.forget(str(pci))
                raise
            return job(device, watch)

        return self._in_session(lambda: self._guard.run(str(pci), with_device), _ENTER_SECONDS)

    def read(
        self, jobs: Mapping[PciAddress, Callable[[NvmlDevice, Watch], T]]
    ) -> dict[PciAddress, T | NvmlCallFailed]:
        """Do a job with the handle of each GPU, all at once, in the readers' workers: no other caller waits.

        The jobs ask and change nothing. What each gives, or why it gives nothing. Raises LetGo, at once,
        while no session may be begun, and NvmlError where there is none.
        """

        def with_device(pci: PciAddress, watch: Watch) -> T:
            return jobs[pci](watch("device_by_pci", lambda: self._nvml.device_by_pci(pci)), watch)

        def work() -> dict[PciAddress, T | NvmlCallFailed]:
            found = self._readers.side_by_side({str(pci): partial(with_device, pci) for pci in jobs})
            for answer in found.values():
                if isinstance(answer, SessionLost | DriverNotLoaded):
                    raise answer
            return {pci: found[str(pci)] for pci in jobs}

        return self._in_session(work, wait_seconds=0.0)

    def watch_events(self) -> EventSet:
        """An event set of the GPUs of the last check, without those that hang.

        ``let_go``, ``close`` and a new session end it. A thread that waits for its events delays no check and
        no ``let_go``. Raises NvmlError.
        """

        def handle(watch: Watch, pci: PciAddress) -> NvmlDevice:
            patient = not self._handles_taken
            return watch("device_by_pci", lambda: self._nvml.device_by_pci(pci), patient=patient)

        def register() -> EventSet:
            devices = []
            for pci in sorted(self._last):
                try:
                    devices.append(self._guard.run(str(pci), partial(handle, pci=pci)))
                except (SessionLost, DriverNotLoaded):
                    raise
                except NvmlError:  # the next look tells of it
                    continue
            return self._guard.run(
                _EVENTS_WORKER, lambda watch: watch("watch_events", lambda: self._nvml.watch_events(devices))
            )

        return self._in_session(register, _ENTER_SECONDS)

    def on_mode_change(self, listener: Callable[[str, bool], None]) -> None:
        """Call the listener with a GPU's address when a change of its MIG mode begins, and when it ends."""
        self._guard.listener = listener

    def close(self) -> None:
        """End the NVML session, if there is one; waits no longer than the guard's deadline."""
        self._end(self._session)

    @contextmanager
    def let_go(self, wait_seconds: float = _LET_GO_SECONDS) -> Iterator[None]:
        """End the session, and begin none until the block is left: no GPU is held by this process in it.

        A kernel driver keeps a GPU for as long as any session has it open. Calls under way are waited for,
        at most ``wait_seconds``. Other threads wait meanwhile; the block itself must not ask for
        GPUs. Several may be in such a block. Raises NvmlError where a call does not return or the session
        does not end: this process may hold GPUs then.
        """
        with self._gate.closed(wait_seconds):
            hung = dict.fromkeys((*self._guard.hung(), *self._readers.hung(), *self._workers.unanswered()))
            if hung:
                raise LetGo(f"NVML cannot be let go of: a call of {', '.join(hung)} does not return")
            self._end(self._session, strict=True)
            yield

    def _in_session(self, work: Callable[[], T], wait_seconds: float) -> T:
        """Do the work in a session; when that turns out to be void, do it once more in a new one."""
        with self._gate.entered(wait_seconds):
            session = self._begin()
            try:
                return work()
            except (SessionLost, DriverNotLoaded):
                self._end(session)
                self._begin()
                return work()

    def _begin(self) -> int:
        """The number of the open session; opens one where there is none."""

        def job(watch: Watch) -> None:
            # In the worker, so that an init which comes back too late still counts as a session.
            watch("init", self._nvml.init)
            self._session += 1
            self._open = True
            self._handles_taken = False
            self._offered = {}

        with self._lock:
            if not self._open:
                self._guard.run(NODE_LANE, job)
            return self._session

    def _end(self, session: int, *, strict: bool = False) -> None:
        """Close the session unless another thread has done so; a void one cannot be closed any more.

        With ``strict`` raises NvmlError where it does not end in time.
        """

        def job(watch: Watch) -> None:
            self._open = False
            watch("shutdown", self._nvml.shutdown)

        with self._lock:
            if self._open and self._session == session:
                try:
                    self._guard.run(NODE_LANE, job)
                except NvmlTimeout:
                    self._open = False
                    if strict:
                        raise
                except NvmlError:
                    self._open = False

    def _look(self) -> Inventory:
        driver, count, problems = self._guard.run(NODE_LANE, self._ask_node)
        if driver != self._last_driver:
            self._last = {pci: _before_this_driver(gpu) for pci, gpu in self._last.items()}
            self._last_driver = driver
            self._offered = {}
        cgroup_v2 = _has_cgroup_v2(self._sysfs_root)
        seen = pci_view(self._sysfs_root)
        present = tuple(function.pci for function in seen.physical)
        walks = self._walk(count, present, cgroup_v2)
        gpus: dict[PciAddress, Gpu] = {}
        nameless: list[GpuWalk] = []
        # Those that told their address come first: the address of the others is an expectation.
        for walk in sorted(walks, key=lambda walk: not walk.told_pci):
            gpu = walk.result()
            if gpu is None or gpu.pci in gpus:
                problems.extend(walk.problems)
                if gpu is None:
                    nameless.append(walk)
            else:
                gpus[gpu.pci] = gpu
        told = {walk.pci for walk in nameless if walk.told_pci}
        unlisted = self._unlisted([pci for pci in present if pci not in told], gpus, problems)
        self._last = gpus
        found = tuple(gpus[pci] for pci in sorted(gpus))
        unread = unread_gpus(nameless, unlisted, bool(present))
        fabric = NO_FABRIC if self._fabric is None else self._fabric.current()
        if fabric.unanswered:
            found = tuple(replace(gpu, unanswered=gpu.unanswered | {FABRIC_PARTITIONS}) for gpu in found)
        if fabric != NO_FABRIC:
            found = tuple(_before_its_partition(gpu) for gpu in found)
        return Inventory(found, driver, self._last_cuda, tuple(problems), unread, seen, fabric, cgroup_v2)

    def _walk(self, count: int, present: Collection[PciAddress], cgroup_v2: bool) -> list[GpuWalk]:
        """Walk all GPUs side by side, each in its worker."""
        expected = self._expected(present)
        walks = [
            GpuWalk(
                *(index, expected.get(index), self._last, self._sysfs_root, present, cgroup_v2, self._offered)
            )
            for index in range(count)
        ]
        workers = [str(walk.pci or f"GPU {index}") for index, walk in enumerate(walks)]
        each = zip(workers, enumerate(walks), strict=True)
        jobs = {worker: partial(self._walk_one, *one) for worker, one in each}
        failures = self._workers.finish(jobs, is_first=not self._handles_taken)
        self._handles_taken = True
        for worker, walk in zip(workers, walks, strict=True):
            if worker in failures:
                walk.blame(failures[worker])
        return walks

    def _walk_one(self, index: int, walk: GpuWalk, watch: Watch) -> None:
        patient = not self._handles_taken
        walk.run(watch("device_by_index", lambda: self._nvml.device_by_index(index), patient=patient), watch)

    def _expected(self, present: Collection[PciAddress]) -> dict[int, PciAddress]:
        """Which GPU each index had last time, but for those that have left the bus or their driver since."""
        return {
            gpu.index: pci
            for pci, gpu in self._last.items()
            if not present
            or (pci in present and sysfs.bound_driver(self._sysfs_root, pci) == NVIDIA_KERNEL_DRIVER)
        }

    def _ask_node(self, watch: Watch) -> tuple[str, int, list[Problem]]:
        """Driver version, the number of GPUs, and what is wrong; the CUDA version stays where it fails."""
        driver = watch("driver_version", self._nvml.driver_version)
        problems = []
        try:
            self._last_cuda = watch("cuda_driver_version", self._nvml.cuda_driver_version)
        except (SessionLost, DriverNotLoaded):
            raise
        except NotSupported:
            self._last_cuda = None
        except NvmlError as error:
            problems.append(problem_of(error))
        return driver, watch("device_count", self._nvml.device_count), problems

    def _unlisted(
        self, present: Collection[PciAddress], gpus: dict[PciAddress, Gpu], problems: list[Problem]
    ) -> tuple[UnreadGpu, ...]:
        """GPUs that the NVIDIA driver has and that NVML does not list: lost where they were there before.

        The others are the node's problem, and are returned. One of another kernel driver, or of none, is no
        business of NVML's.
        """
        unread = []
        for pci in present:
            if pci in gpus:
                continue
            if sysfs.bound_driver(self._sysfs_root, pci) != NVIDIA_KERNEL_DRIVER:
                continue
            message = f"NVML does not list the NVIDIA function {pci}, which the NVIDIA driver has"
            before = self._last.get(pci)
            if before is not None:
                lost = (Problem(_COUNT, "lost", message),)
                gpus[pci] = replace(before, problems=lost, condition=unheard(before.condition))
            else:
                problems.append(Problem(_COUNT, "error", message))
                unread.append(UnreadGpu(pci, (Problem(_COUNT, "lost", message),)))
        return tuple(unread)


def _has_cgroup_v2(sysfs_root: Path) -> bool:
    """Whether the node has cgroup v2 where NVML looks for it; not where it is beside v1 (cgroups(7))."""
    return (sysfs_root / "fs" / "cgroup" / "cgroup.controllers").is_file()


def _before_its_partition(gpu: Gpu) -> Gpu:
    """The GPU where NVSwitches are shared out: its fabric is set up once a claim has its partition."""
    problems = tuple(one for one in gpu.problems if one.value != FABRIC_NOT_STARTED)
    return replace(gpu, problems=problems)


def _before_this_driver(gpu: Gpu) -> Gpu:
    """What was known of a GPU, without what another version of the NVIDIA driver may answer otherwise."""
    return replace(gpu, memory_limits=None, unanswered=gpu.unanswered | {OF_THE_DRIVER}, condition=NOT_ASKED)
