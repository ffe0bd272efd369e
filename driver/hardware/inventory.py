"""Reads NVML and sysfs into an Inventory, with a worker per GPU, so that no broken GPU hides the others."""

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
from driver.hardware.call_effects import FABRIC_PARTITIONS
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER
from driver.hardware.gate import Gate, LetGo
from driver.hardware.gpu import NOT_ASKED, Gpu, Inventory, Problem, UnreadGpu, without_answers
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
    SessionLost,
)
from driver.nvml.deadline import Guard, Watch, Workers
from driver.nvml.health.calls import EventSet
from driver.nvml.pci_address import PciAddress

T = TypeVar("T")

NODE_WORKER = "the node"
_EVENTS_WORKER = "the node's events"
_COUNT = "nvmlDeviceGetCount_v2"
_ENTER_SECONDS = 10.0
# Longer than the deadline of a call, so that a call that hangs is known to hang by then.
_LET_GO_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """The board at a PCI address, and the N of its /dev/nvidiaN.

    ``can_do_mig`` is false if NVML says that this board has no MIG mode, which no setting changes.
    """

    uuid: str
    minor: int
    can_do_mig: bool = True


class Discovery:
    """Reads the GPUs of this node. Thread-safe; every NVML call is made by a worker of ``guard``.

    It has one NVML session. The first call that needs it opens it, and it is opened again when the NVIDIA
    driver went away, came back or changed its version. While a session is open, the kernel driver cannot be
    unloaded, nor can a GPU be taken from it. ``close`` ends the session until the next call; within
    ``let_go`` none is opened. ``sysfs_root`` is where sysfs is mounted, ``/sys`` on a real node. ``fabric``
    gives the partitions of the NVLink fabric, None if they are not needed. ``readers`` has the workers of
    ``read``.
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
        self._known_profiles: KnownProfiles = {}
        self._workers = Workers(guard)
        self._last: Mapping[PciAddress, Gpu] = {}
        self._last_driver: str | None = None
        self._last_cuda: str | None = None

    def snapshot(self) -> Inventory:
        """Read everything. A value that cannot be read now stays as it was, with a problem that says so.

        Raises DriverNotLoaded if there is no NVIDIA driver, and another NvmlError if NVML as a whole cannot
        be used; then nothing is known about any GPU. Raises LetGo at once while no session may be opened,
        which says nothing about the GPUs.
        """
        return self._in_session(self._check, wait_seconds=0.0)

    def without_driver(self) -> Inventory:
        """What sysfs alone shows, for a node on which ``snapshot`` finds no NVIDIA driver."""
        return Inventory(pci=pci_view(self._sysfs_root))

    def identity(self, pci: PciAddress) -> GpuIdentity:
        """Ask NVML which board is at an address now; raises NvmlError, NotFound if there is none."""

        def job(device: NvmlDevice, watch: Watch) -> GpuIdentity:
            found = GpuIdentity(watch("uuid", device.uuid), watch("minor", device.minor))
            try:
                watch("mig_mode", device.mig_mode)
            except NotSupported:
                return replace(found, can_do_mig=False)
            except NvmlCallFailed:
                return found  # whoever needs the mode asks again
            return found

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
        """The processes that use the GPU now, sorted; raises NvmlError, NotSupported if NVML cannot say."""
        return self.on_gpu(pci, lambda device, watch: watch("process_ids", device.process_ids))

    def on_gpu(self, pci: PciAddress, job: Callable[[NvmlDevice, Watch], T]) -> T:
        """Do a job with one GPU's handle in its worker. Jobs of one GPU run one after the other.

        The job makes every call through the watch. If the session turns out to have ended, the job is done
        again in a new one. Raises what the job raises, and NvmlError.
        """

        def with_device(watch: Watch) -> T:
            # The first handle of a session may take seconds: the kernel initialises the GPU then.
            patient = not self._handles_taken
            try:
                device = watch("device_by_pci", lambda: self._nvml.device_by_pci(pci), patient=patient)
            except NotFound:
                # Without such a GPU its worker would stay for ever, and claims may name any address.
                self._guard.forget(str(pci))
                raise
            return job(device, watch)

        return self._in_session(lambda: self._guard.run(str(pci), with_device), _ENTER_SECONDS)

    def read(
        self, jobs: Mapping[PciAddress, Callable[[NvmlDevice, Watch], T]]
    ) -> dict[PciAddress, T | NvmlCallFailed]:
        """Do a job with the handle of each GPU, all at the same time; return the results or errors.

        They run in workers of their own, so that no other caller waits for them. The jobs must only read.
        Raises LetGo at once while no session may be opened, and NvmlError if none can be opened.
        """

        def with_device(pci: PciAddress, watch: Watch) -> T:
            return jobs[pci](watch("device_by_pci", lambda: self._nvml.device_by_pci(pci)), watch)

        def work() -> dict[PciAddress, T | NvmlCallFailed]:
            found = self._readers.side_by_side({str(pci): partial(with_device, pci) for pci in jobs})
            # Either says that the session has ended for all, so _in_session has to see it.
            for answer in found.values():
                if isinstance(answer, SessionLost | DriverNotLoaded):
                    raise answer
            return {pci: found[str(pci)] for pci in jobs}

        return self._in_session(work, wait_seconds=0.0)

    def watch_events(self) -> EventSet:
        """An event set of the GPUs of the last check, without those that hang.

        ``let_go``, ``close`` and a new session end it. A thread that waits for its events delays neither a
        check nor ``let_go``. Raises NvmlError.
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
                # The next check reports it.
                except NvmlError:
                    continue
            return self._guard.run(
                # A worker of its own, so that registration never waits behind a check.
                _EVENTS_WORKER,
                lambda watch: watch("watch_events", lambda: self._nvml.watch_events(devices)),
            )

        return self._in_session(register, _ENTER_SECONDS)

    def on_mode_change(self, listener: Callable[[str, bool], None]) -> None:
        """Call the listener with a GPU's address when a change of its MIG mode begins, and when it ends."""
        self._guard.on_mode_change = listener

    def close(self) -> None:
        """End the NVML session, if there is one; waits no longer than the guard's deadline."""
        self._end(self._session)

    @contextmanager
    def let_go(self, wait_seconds: float = _LET_GO_SECONDS) -> Iterator[None]:
        """End the session and open none until the block is left, so that this process holds no GPU in it.

        Waits up to ``wait_seconds`` for calls that are being made. Other threads wait meanwhile. The block
        itself must not use this object. Several threads may be in such a block. Raises NvmlError if a call
        does not return or the session does not end; then this process may still hold GPUs.
        """
        with self._gate.closed(wait_seconds):
            # A thread that hangs in a call keeps the session, and the GPU, open, whatever nvmlShutdown says.
            hung = dict.fromkeys((*self._guard.hung(), *self._readers.hung(), *self._workers.unanswered()))
            if hung:
                raise LetGo(f"cannot close the NVML session: a call of {', '.join(hung)} does not return")
            self._end(self._session, strict=True)
            yield

    def _in_session(self, work: Callable[[], T], wait_seconds: float) -> T:
        """Do the work in a session. If that session turns out to have ended, do it again in a new one."""
        with self._gate.entered(wait_seconds):
            session = self._begin()
            try:
                return work()
            except (SessionLost, DriverNotLoaded):
                self._end(session)
                self._begin()
                return work()

    def _begin(self) -> int:
        """The number of the open session; opens one if there is none."""

        def job(watch: Watch) -> None:
            # Set in the worker, so that an init that returns after its deadline still counts as a session.
            watch("init", self._nvml.init)
            self._session += 1
            self._open = True
            self._handles_taken = False
            self._known_profiles = {}

        with self._lock:
            if not self._open:
                self._guard.run(NODE_WORKER, job)
            return self._session

    def _end(self, session: int, *, strict: bool = False) -> None:
        """Close the session unless another thread has done so. ``strict``: raise NvmlError if it stays."""

        def job(watch: Watch) -> None:
            # Whatever shutdown answers: an ended session cannot be closed, and one whose shutdown hangs
            # cannot be used.
            self._open = False
            watch("shutdown", self._nvml.shutdown)

        with self._lock:
            if self._open and self._session == session:
                try:
                    self._guard.run(NODE_WORKER, job)
                except (SessionLost, DriverNotLoaded):
                    self._open = False
                except NvmlError:
                    self._open = False
                    if strict:
                        raise

    def _check(self) -> Inventory:
        # In the node's worker: these calls need no GPU and still answer while GPUs hang.
        driver, count, problems = self._guard.run(NODE_WORKER, self._ask_node)
        if driver != self._last_driver:
            # Fields that follow from the board alone stay.
            self._last = {pci: _without_driver_answers(gpu) for pci, gpu in self._last.items()}
            self._last_driver = driver
            self._known_profiles = {}
        cgroup_v2 = _has_cgroup_v2(self._sysfs_root)
        seen = pci_view(self._sysfs_root)
        present = tuple(function.pci for function in seen.physical)
        walks = self._walk(count, present, cgroup_v2)
        gpus: dict[PciAddress, Gpu] = {}
        unidentified: list[GpuWalk] = []
        # Certain addresses first: the others are expectations, and must not take the place of a certain one.
        for walk in sorted(walks, key=lambda walk: not walk.pci_is_certain):
            gpu = walk.result()
            if gpu is None or gpu.pci in gpus:
                problems.extend(walk.problems)
                if gpu is None:
                    unidentified.append(walk)
            else:
                gpus[gpu.pci] = gpu
        listed = {walk.pci for walk in unidentified if walk.pci_is_certain}
        unlisted = self._unlisted([pci for pci in present if pci not in listed], gpus, problems)
        self._last = gpus
        found = tuple(gpus[pci] for pci in sorted(gpus))
        unread = unread_gpus(unidentified, unlisted, bool(present))
        fabric = NO_FABRIC if self._fabric is None else self._fabric.current()
        if fabric.unanswered:
            found = tuple(replace(gpu, unanswered=gpu.unanswered | {FABRIC_PARTITIONS}) for gpu in found)
        # Where NVSwitches are shared by partitions, a GPU's fabric is set up only when a claim has its
        # partition.
        if fabric != NO_FABRIC:
            found = tuple(_without_fabric_problem(gpu) for gpu in found)
        return Inventory(found, driver, self._last_cuda, tuple(problems), unread, seen, fabric, cgroup_v2)

    def _walk(self, count: int, present: Collection[PciAddress], cgroup_v2: bool) -> list[GpuWalk]:
        """Check all GPUs at the same time, each in its worker."""
        expected = self._expected(present)
        walks = [
            GpuWalk(
                index,
                expected.get(index),
                self._last,
                self._sysfs_root,
                present,
                cgroup_v2,
                self._known_profiles,
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
                walk.add_problem(failures[worker])
        return walks

    def _walk_one(self, index: int, walk: GpuWalk, watch: Watch) -> None:
        patient = not self._handles_taken
        walk.run(watch("device_by_index", lambda: self._nvml.device_by_index(index), patient=patient), watch)

    def _expected(self, present: Collection[PciAddress]) -> dict[int, PciAddress]:
        """The GPU that had each index last time, without those that have left the bus or their driver."""
        return {
            gpu.index: pci
            for pci, gpu in self._last.items()
            if not present
            or (pci in present and sysfs.bound_driver(self._sysfs_root, pci) == NVIDIA_KERNEL_DRIVER)
        }

    def _ask_node(self, watch: Watch) -> tuple[str, int, list[Problem]]:
        """The driver version, the number of GPUs and problems; a CUDA version that cannot be read stays."""
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
        """Find GPUs that the NVIDIA driver holds and NVML does not list.

        Those that were known before are lost, and are added to ``gpus``. The others are returned, and are a
        problem of the node.
        """
        unread = []
        for pci in present:
            if pci in gpus:
                continue
            # A GPU on vfio, or on no driver, is not NVML's, and is not missed.
            if sysfs.bound_driver(self._sysfs_root, pci) != NVIDIA_KERNEL_DRIVER:
                continue
            message = f"NVML does not list {pci}, which is bound to the NVIDIA driver"
            before = self._last.get(pci)
            if before is not None:
                lost = (Problem(_COUNT, "lost", message),)
                gpus[pci] = replace(before, problems=lost, condition=without_answers(before.condition))
            else:
                problems.append(Problem(_COUNT, "error", message))
                unread.append(UnreadGpu(pci, (Problem(_COUNT, "lost", message),)))
        return tuple(unread)


def _has_cgroup_v2(sysfs_root: Path) -> bool:
    """Whether the node has cgroup v2 where NVML expects it."""
    # In hybrid mode v2 is mounted at fs/cgroup/unified, where NVML does not look (cgroups(7)).
    return (sysfs_root / "fs" / "cgroup" / "cgroup.controllers").is_file()


def _without_fabric_problem(gpu: Gpu) -> Gpu:
    """The GPU without the problem that its fabric is not set up."""
    problems = tuple(one for one in gpu.problems if one.value != FABRIC_NOT_STARTED)
    return replace(gpu, problems=problems)


def _without_driver_answers(gpu: Gpu) -> Gpu:
    """A GPU's last state, without what another version of the NVIDIA driver may answer otherwise."""
    return replace(
        gpu, memory_limits=None, unanswered=gpu.unanswered | {"memory_limits"}, condition=NOT_ASKED
    )
