"""Limits each container of a claim to its memory of a GPU, from before its first process until it has ended.

Many containers may use one claim, but NVML limits each control group by itself. So a claim's memory is
divided among its containers, and the ledger has the part of each. What a claim may have is in the journal
alone. One instance of the plugin at a time works on a GPU, under one lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from driver.errors import ClaimBlocked, DriverError, NvmlError
from driver.nvml.memory_limits import Cgroup
from driver.process.log import get_logger
from kubeletplugin.claims.journal.locks import KeyedLocks
from kubeletplugin.kubelet.wire.containers import (
    ContainerMemory,
    ContainerName,
    ContainerStart,
    NotAnswered,
)
from kubeletplugin.sharing.memory.allowances import Allowance, Device
from kubeletplugin.sharing.memory.division import Portion
from kubeletplugin.sharing.memory.ledger import Part
from kubeletplugin.sharing.memory.one_gpu import Listed, MemoryPorts, OneGpu

PATIENCE_SECONDS = 18.0
"""How long a container that starts may have to wait. The last try then ends within the hook's own 30 s."""

_LOCK_SECONDS = 4.0
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0

_log = get_logger("memory")


def memory_key(pci: str) -> str:
    """The key of the lock for changing limits on a GPU. It is taken after all other locks."""
    return f"memory {pci}"


class ClaimMemory:
    """The memory of the claims of one node. Any number of calls may come at once.

    ``generation()`` differs between loads of the NVIDIA driver. ``listed()`` gives the containers that the
    kubelet lists, by CDI device; it raises DriverError.
    """

    def __init__(
        self,
        ports: MemoryPorts,
        locks: KeyedLocks,
        generation: Callable[[], str],
        listed: Callable[[], Listed],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._ports = ports
        self._locks = locks
        self._generation = generation
        self._listed = listed
        self._patience_seconds = min(patience_seconds, PATIENCE_SECONDS)
        self._uses = _MemoryUses(ports)
        self._guard = threading.Lock()
        # By GPU, the devices whose limits could not be set.
        self._faults: dict[str, dict[Device, str]] = {}
        # By GPU, the load of the driver in which all its limits were last set.
        self._restored_generation: dict[str, str] = {}
        self._checked_generation = generation()
        # Until the first pass has read the ledger, there may be parts of an instance before this one.
        self._has_parts = True
        self._bursts = False
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
                # First, so that a container without an allowance is refused at once.
                pci = self._ports.allowances.for_start(start).pci
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
        """Read every limit back, set missing ones again, and divide the claims' memory again.

        An error on one GPU does not stop the others: see ``faults``. Raises StorageError.
        """
        generation = self._generation()
        # Before the ledger is read: a container that starts meanwhile sets it again.
        self._has_parts = False
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        if gpus:
            self._has_parts = True
        listed = self._ask_kubelet() if gpus else None
        bursts = False
        for pci in gpus:
            faults, has_burst = self._check_gpu(pci, listed)
            bursts |= has_burst
            if faults is not None:
                with self._guard:
                    self._faults[pci] = faults | self._unreadable(pci)
        with self._guard:
            for pci in self._faults.keys() - set(gpus):
                del self._faults[pci]
            for pci in self._restored_generation.keys() - set(gpus):
                del self._restored_generation[pci]
            self._checked_generation = generation
        self._bursts = bursts

    def check_driver(self) -> None:
        """Ask for ``run_once`` if the NVIDIA driver was loaded again, which loses all limits."""
        if not self._has_parts:
            return
        generation = self._generation()
        with self._guard:
            known = {self._checked_generation, *self._restored_generation.values()}
        if generation and known != {generation}:
            self.wanted.set()

    def claims_changed(self) -> None:
        """Called when claims hold other devices. A container may have to give up its burst then."""
        if self._bursts:
            self.wanted.set()

    def faults(self) -> Mapping[Device, str]:
        """By claim UID and CDI device, why containers are not limited, as of the last pass."""
        with self._guard:
            return {device: why for found in self._faults.values() for device, why in found.items()}

    def used(self) -> tuple[ContainerMemory, ...]:
        """The limits and the use of each live container. NVML is asked at each call. Raises StorageError."""
        return self._uses.now()

    def _start(self, start: ContainerStart, pci: str, group: Cgroup, *, is_last: bool) -> None:
        """Try once. In the last try it does without the list of a kubelet that does not answer."""
        # Without the list, the first container of a claim would get all of its memory and the second one
        # would be refused. So earlier tries fail if the kubelet does not answer.
        listed = (self._ask_kubelet() or {}) if is_last else self._listed()
        with self._locks.holding([memory_key(pci)], _LOCK_SECONDS):
            # Once more, since the claim may have been unprepared before the lock was taken.
            allowance = self._ports.allowances.for_start(start)
            self._refuse_unreadable(allowance)
            gpu = OneGpu(pci, self._ports)
            self._restore(gpu)
            portion = gpu.admit(_part(start, allowance, group), listed)
            self._has_parts = True
            self._bursts |= gpu.bursts
        _log.info(
            "GPU memory of a container is limited",
            uid=start.claim_uid,
            device=start.cdi_device,
            container=start.container,
            pod=f"{start.namespace}/{start.pod}",
            hard_bytes=portion.hard_bytes,
        )

    def _check_gpu(self, pci: str, listed: Listed | None) -> tuple[dict[Device, str] | None, bool]:
        """The faults on a GPU, and whether any claim on it has a burst.

        Faults are None if another thread or instance has the lock: then nothing is known.
        """
        with ExitStack() as lock:
            try:
                lock.enter_context(self._locks.holding([memory_key(pci)], _LOCK_SECONDS))
            except ClaimBlocked as error:
                _log.info("memory limits of a GPU are checked later", gpu=pci, error=error.logged)
                return None, True
            try:
                gpu = OneGpu(pci, self._ports)
                return self._check_locked(gpu, listed), gpu.bursts
            except DriverError as error:
                _log.warning("cannot check the memory limits of a GPU", gpu=pci, error=error.logged)
                parts = self._ports.ledger.on_gpu(pci)
                return {(part.claim_uid, part.cdi_device): str(error) for part in parts}, True

    def _check_locked(self, gpu: OneGpu, listed: Listed | None) -> dict[Device, str]:
        """Restore and divide on one GPU, whose lock is held; returns the faults."""
        faults = self._restore(gpu, again=True)
        if listed is not None:
            faults |= gpu.divide(listed)
        gpu.write()
        return faults

    def _restore(self, gpu: OneGpu, *, again: bool = False) -> dict[Device, str]:
        """Set missing limits, if that was not yet done in this load of the driver; returns the faults."""
        generation = self._generation()
        with self._guard:
            was = self._restored_generation.get(gpu.pci)
        if was == generation and not again:
            return {}
        faults = gpu.restore()
        if not faults:
            with self._guard:
                self._restored_generation[gpu.pci] = generation
        return faults

    def _ask_kubelet(self) -> Listed | None:
        """The containers that the kubelet lists, None if it does not answer."""
        try:
            return self._listed()
        except DriverError as error:
            _log.warning("cannot read how many containers use a claim", error=error.logged)
            return None

    def _refuse_unreadable(self, allowance: Allowance) -> None:
        """Raise ClaimBlocked if the parts of the claim's other containers cannot be read."""
        wrong = self._ports.ledger.wrong(allowance.device[0], allowance.pci)
        if wrong:
            raise ClaimBlocked(
                f"cannot read what the containers of claim {allowance.device[0]} have of GPU "
                f"{allowance.pci}: {wrong}",
                "delete the pods of the claim, so that it is prepared again",
            )

    def _unreadable(self, pci: str) -> dict[Device, str]:
        allowed = self._ports.allowances.on_gpu(pci, lambda: 0, ())
        found = {device: self._ports.ledger.wrong(device[0], pci) for device in allowed}
        return {device: f"cannot read its ledger: {wrong}" for device, wrong in found.items() if wrong}


def _part(start: ContainerStart, allowance: Allowance, group: Cgroup) -> Part:
    """The part of a new container, still without limits."""
    name = ContainerName(start.namespace, start.pod, start.container)
    return Part(*allowance.device, allowance.pci, group, start.container_id, name, Portion())


class _MemoryUses:
    """The limits and the use of each live container. It takes no lock, so no container waits for it."""

    def __init__(self, ports: MemoryPorts) -> None:
        self._ports = ports

    def now(self) -> tuple[ContainerMemory, ...]:
        """The use of all containers, by GPU, then by claim, device and group; raises StorageError."""
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        return tuple(one for pci in gpus for one in self._on_gpu(pci))

    def _on_gpu(self, pci: str) -> Iterable[ContainerMemory]:
        parts = [part for part in self._ports.ledger.on_gpu(pci) if self._ports.cgroups.is_there(part.cgroup)]
        allowed = self._ports.allowances.on_gpu(pci, lambda: 0, ())
        try:
            limits = self._ports.limits.read_beside(pci, (part.cgroup.path for part in parts))
        except NvmlError as error:
            _log.warning("cannot read the used memory", gpu=pci, error=error.logged)
            limits = {}
        # NVML says what a group uses as a whole. It is divided among the group's parts: the first ones are
        # filled, and the last one gets all that is left, even if that is more than its limit.
        left = {
            part.cgroup: one.used_bytes if (one := limits.get(part.cgroup.path)) else None for part in parts
        }
        counts = {group: sum(part.cgroup == group for part in parts) for group in left}
        for part in sorted(parts, key=lambda one: (*one.key[:2], one.cgroup.path)):
            allowance = allowed.get((part.claim_uid, part.cdi_device))
            counts[part.cgroup] -= 1
            used_bytes = _fill(left, part, last=not counts[part.cgroup])
            yield ContainerMemory(
                part.claim_uid,
                part.cdi_device,
                allowance.name if allowance is not None else "",
                pci,
                allowance.uuid if allowance is not None else "",
                part.name.namespace,
                part.name.pod,
                part.name.container,
                part.portion.soft_bytes,
                part.portion.hard_bytes,
                used_bytes,
            )


def _fill(left: dict[Cgroup, int | None], part: Part, *, last: bool) -> int | None:
    """The bytes of a group's use that count for one of its parts; takes them off what is ``left``."""
    rest = left[part.cgroup]
    if rest is None:
        return None
    used_bytes = rest if last else min(rest, part.portion.hard_bytes)
    left[part.cgroup] = rest - used_bytes
    return used_bytes
