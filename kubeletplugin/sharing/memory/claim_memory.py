"""Limits each container of a claim to its memory of a GPU, from before its first process until it has ended.

Many containers may use one claim, but NVML limits each control group by itself. So a claim's memory is
divided among its containers, and the ledger has the part of each. What a claim may have is in the journal
alone. One instance of the plugin at a time works on a GPU, under one lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from driver.errors import ClaimBlocked, ClaimRefused, DriverError, NvmlError
from driver.nvml.memory_limits import Cgroup
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks
from kubeletplugin.kubelet.wire.containers import (
    ContainerMemory,
    ContainerName,
    ContainerStart,
    NotAnswered,
)
from kubeletplugin.sharing.memory.one_gpu import Device, Listed, MemoryPorts, OneGpu, Part

PATIENCE_SECONDS = 18.0
"""How long a container that starts may have to wait. The last try then ends within the hook's own 30 s."""

_LOCK_SECONDS = 4.0
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0
_PREPARE_AGAIN = "delete the pod, so that its claim is prepared again"

_log = get_logger("memory")


def memory_key(pci: str) -> str:
    """The key of the lock for changing limits on a GPU. It is taken after all other locks."""
    return f"memory {pci}"


def limited_device(journal: Journal, start: ContainerStart) -> tuple[HeldDevice, int]:
    """The device with which a container starts, and the number of its claim's requests with devices.

    Raises ClaimRefused if the container must not have the device, StorageError.
    """
    entry = journal.get(start.claim_uid)
    now = journal.standing(entry)
    if entry is None or now.state in ("released", "releasing"):
        raise ClaimRefused(
            f"claim {start.claim_uid} is not prepared on this node, so no container can get its devices",
            _PREPARE_AGAIN,
        )
    if now.ended:
        raise ClaimRefused(
            f"claim {entry.owner} was prepared before the NVIDIA driver was reloaded",
            _PREPARE_AGAIN,
        )
    held = next((held for held in entry.devices if held.cdi_device == start.cdi_device), None)
    if held is None or held.memory_limit_bytes is None:
        raise ClaimRefused(
            f"claim {entry.owner} has no device {start.cdi_device} with a memory limit, so the "
            "container cannot be limited",
            _PREPARE_AGAIN,
        )
    if held.more_gpus:
        raise ClaimRefused(
            f"{held.device} spans several GPUs, but a memory limit applies to one",
            "use a class whose devices are on one GPU each",
        )
    return held, len({device.request for device in entry.devices})


class ClaimMemory:
    """The memory of the claims of one node. Any number of calls may come at once.

    ``listed()`` gives the containers that the
    kubelet lists, by CDI device; it raises DriverError.
    """

    def __init__(
        self,
        ports: MemoryPorts,
        journal: Journal,
        locks: KeyedLocks,
        listed: Callable[[], Listed],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._ports = ports
        self._journal = journal
        self._locks = locks
        self._listed = listed
        self._patience_seconds = min(patience_seconds, PATIENCE_SECONDS)
        self._guard = threading.Lock()
        # By GPU, the devices whose limits could not be set.
        self._faults: dict[str, dict[Device, str]] = {}
        # By GPU, the load of the driver in which all its limits were last set.
        self._restored_generation: dict[str, str] = {}
        self._checked_generation = journal.generation()
        # Until the first pass has read the ledger, there may be parts of an instance before this one.
        self._has_parts = True
        self._stopped = threading.Event()
        self.wanted = threading.Event()
        """Set if ``run_once`` should be called before its time."""

    def start(self, start: ContainerStart) -> None:
        """Limit a container that is about to run to its part of its claim's memory.

        Problems that may pass are tried again, since a pod that never restarts is lost with its container.
        After any error the container must not run. Raises ClaimRefused, ClaimBlocked, NvmlError,
        StorageError, and NotAnswered after ``stop``.
        """
        deadline, delay_seconds = time.monotonic() + self._patience_seconds, _FIRST_DELAY_SECONDS
        while True:
            pci, group = "", None
            is_last = time.monotonic() + _LONGEST_DELAY_SECONDS >= deadline
            try:
                # First, so that a container without a limit is refused at once.
                pci = limited_device(self._journal, start)[0].pci
                group = self._ports.cgroups.of_process(start.proc_cgroup)
                return self._start(start, pci, group, is_last=is_last)
            except DriverError as error:
                left_seconds = deadline - time.monotonic()
                # If the container has ended meanwhile, there is nothing to wait for.
                is_gone = bool(pci) and (group is None or not self._ports.cgroups.is_there(group))
                if not error.retryable or left_seconds <= 0 or is_gone:
                    raise
                if self._stopped.wait(min(delay_seconds, left_seconds)):
                    raise NotAnswered from error
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)

    def stop(self) -> None:
        """End all waiting in ``start``: the hooks then ask another instance."""
        self._stopped.set()

    def forget(self, uid: str) -> None:
        """Forget the parts of a claim that is no longer prepared.

        A container that is still there stays limited till it ends. Raises StorageError, ClaimBlocked.
        """
        for claim_uid, pci in self._ports.ledger.places():
            if claim_uid == uid:
                with self._locks.holding([memory_key(pci)], _LOCK_SECONDS):
                    self._forget_on(pci, uid)

    def _forget_on(self, pci: str, uid: str) -> None:
        ledger, cgroups = self._ports.ledger, self._ports.cgroups
        if any(cgroups.is_there(part.cgroup) for part in ledger.of(uid, pci)):
            OneGpu(pci, self._ports).leave(uid)
        else:
            # The usual case. The containers of other claims need not be looked at.
            ledger.forget(uid, pci)

    def run_once(self) -> None:
        """Read every limit back, and set missing ones again.

        An error on one GPU does not stop the others: see ``faults``. Raises StorageError.
        """
        generation = self._journal.generation()
        # Before the ledger is read: a container that starts meanwhile sets it again.
        self._has_parts = False
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        if gpus:
            self._has_parts = True
        for pci in gpus:
            faults = self._check_gpu(pci)
            if faults is not None:
                with self._guard:
                    self._faults[pci] = faults | self._unreadable(pci)
        with self._guard:
            for pci in self._faults.keys() - set(gpus):
                del self._faults[pci]
            for pci in self._restored_generation.keys() - set(gpus):
                del self._restored_generation[pci]
            self._checked_generation = generation

    def check_driver(self) -> None:
        """Ask for ``run_once`` if the NVIDIA driver was loaded again, which loses all limits."""
        if not self._has_parts:
            return
        generation = self._journal.generation()
        with self._guard:
            known = {self._checked_generation, *self._restored_generation.values()}
        if generation and known != {generation}:
            self.wanted.set()

    def faults(self) -> Mapping[Device, str]:
        """By claim UID and CDI device, why containers are not limited, as of the last pass."""
        with self._guard:
            return {device: why for found in self._faults.values() for device, why in found.items()}

    def used(self) -> tuple[ContainerMemory, ...]:
        """The limit and the use of each live container, by GPU, then by claim, device and group.

        NVML is asked at each call. No lock is taken, so no container waits for it. Raises StorageError.
        """
        uses: list[ContainerMemory] = []
        for pci in sorted({pci for _, pci in self._ports.ledger.places()}):
            parts = [
                part for part in self._ports.ledger.on_gpu(pci) if self._ports.cgroups.is_there(part.cgroup)
            ]
            try:
                limits = self._ports.limits.read_beside(pci, (part.cgroup.path for part in parts))
            except NvmlError as error:
                _log.warning("cannot read the used memory", gpu=pci, error=error.logged)
                limits = {}
            used = {path: None if found is None else found.used_bytes for path, found in limits.items()}
            uses += _used_by_parts(parts, used)
        return tuple(uses)

    def _start(self, start: ContainerStart, pci: str, group: Cgroup, *, is_last: bool) -> None:
        """Try once. In the last try it does without the list of a kubelet that does not answer."""
        # Without the list, the first container of a claim would get all of its memory and the second one
        # would be refused. So earlier tries fail if the kubelet does not answer.
        try:
            listed = self._listed()
        except DriverError as error:
            if not is_last:
                raise
            _log.warning("cannot read how many containers use a claim", error=error.logged)
            listed = {}
        with self._locks.holding([memory_key(pci)], _LOCK_SECONDS):
            # Once more, since the claim may have been unprepared before the lock was taken.
            held, requests = limited_device(self._journal, start)
            wrong = self._ports.ledger.wrong(start.claim_uid, pci)
            if wrong:
                raise ClaimBlocked(
                    f"cannot read what the containers of claim {start.claim_uid} have of GPU {pci}: {wrong}",
                    "delete the pods of the claim, so that it is prepared again",
                )
            gpu = OneGpu(pci, self._ports)
            self._restore(gpu)
            name = ContainerName(start.namespace, start.pod, start.container)
            part = Part(start.claim_uid, start.cdi_device, pci, group, start.container_id, name)
            hard_bytes = gpu.admit(part, held, requests, listed.get(start.cdi_device, frozenset()))
            self._has_parts = True
        _log.info(
            "GPU memory of a container is limited",
            uid=start.claim_uid,
            device=start.cdi_device,
            container=start.container,
            pod=f"{start.namespace}/{start.pod}",
            hard_bytes=hard_bytes,
        )

    def _check_gpu(self, pci: str) -> dict[Device, str] | None:
        """The faults on a GPU, None if another thread or instance has the lock: then nothing is known."""
        with ExitStack() as lock:
            try:
                lock.enter_context(self._locks.holding([memory_key(pci)], _LOCK_SECONDS))
            except ClaimBlocked as error:
                _log.info("memory limits of a GPU are checked later", gpu=pci, error=error.logged)
                return None
            try:
                gpu = OneGpu(pci, self._ports)
                faults = self._restore(gpu, again=True)
                gpu.write()
            except DriverError as error:
                _log.warning("cannot check the memory limits of a GPU", gpu=pci, error=error.logged)
                faults = {part.device: str(error) for part in self._ports.ledger.on_gpu(pci)}
        return faults

    def _restore(self, gpu: OneGpu, *, again: bool = False) -> dict[Device, str]:
        """Set missing limits, if that was not yet done in this load of the driver; returns the faults."""
        generation = self._journal.generation()
        with self._guard:
            was = self._restored_generation.get(gpu.pci)
        if was == generation and not again:
            return {}
        faults = gpu.restore()
        if not faults:
            with self._guard:
                self._restored_generation[gpu.pci] = generation
        return faults

    def _unreadable(self, pci: str) -> dict[Device, str]:
        """The limited devices of claims whose file for this GPU cannot be read."""
        return {
            (entry.uid, held.cdi_device): f"cannot read its ledger: {wrong}"
            for entry in self._journal.holders(pci)
            if (wrong := self._ports.ledger.wrong(entry.uid, pci))
            for held in entry.devices
            if held.pci == pci and held.memory_limit_bytes is not None
        }


def _used_by_parts(parts: list[Part], used: dict[str, int | None]) -> Iterator[ContainerMemory]:
    """The use of each part; ``used`` is what NVML says that each group uses as a whole, by path."""
    counts = {path: sum(part.cgroup.path == path for part in parts) for path in used}
    for part in sorted(parts, key=lambda part: (*part.device, part.cgroup.path)):
        path = part.cgroup.path
        used_bytes = left_bytes = used.get(path)
        if used_bytes is not None and left_bytes is not None:
            counts[path] -= 1
            # The first parts of a group are filled, and the last one gets all that is left, even if that is
            # more than its limit.
            used_bytes = min(left_bytes, part.hard_bytes) if counts[path] else left_bytes
            used[path] = left_bytes - used_bytes
        yield ContainerMemory(
            *part.device, part.name.namespace, part.name.pod, part.name.container, part.hard_bytes, used_bytes
        )
