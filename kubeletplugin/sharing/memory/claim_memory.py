"""Limits each container of a claim to its memory of a GPU, from before its first process until it has ended.

A claim has its memory once and many containers may use it, but NVML has limits for each control group. So a
claim's memory is divided among its containers, and the ledger says what each has. Only the journal says what
a claim is allowed. One instance of the plugin at a time works on a GPU, under one lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from driver.errors import ClaimBlocked, DriverError, NvmlError
from driver.nvml.memory_limits import MemoryLimits
from driver.process.log import get_logger
from kubeletplugin.claims.journal.locks import KeyedLocks
from kubeletplugin.kubelet.wire.containers import (
    ContainerMemory,
    ContainerName,
    ContainerStart,
    NotAnswered,
)
from kubeletplugin.sharing.memory.allowances import Allowance, Device
from kubeletplugin.sharing.memory.cgroups import Cgroup
from kubeletplugin.sharing.memory.division import Portion
from kubeletplugin.sharing.memory.ledger import Part
from kubeletplugin.sharing.memory.one_gpu import Listed, MemoryPorts, OneGpu

PATIENCE_SECONDS = 18.0
"""How long a container that starts is kept waiting; the last try then ends within the hook's own 30 s."""

_LOCK_SECONDS = 4.0
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0

_log = get_logger("memory")


def memory_key(pci: str) -> str:
    """The key of the lock under which limits on a GPU are changed; taken after all other locks."""
    return f"memory {pci}"


class ClaimMemory:
    """The memory of the claims of one node. Any number of calls may come at once.

    ``generation()`` tells one load of the NVIDIA driver from the next. ``listed()`` gives the containers that
    the kubelet lists, by CDI device; it raises DriverError.
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
        self._faults: dict[str, dict[Device, str]] = {}
        self._held_in: dict[str, str] = {}
        self._looked_in = generation()
        self._has_parts = True
        self._bursts = False
        self._stopped = threading.Event()
        self.wanted = threading.Event()
        """Set when ``run_once`` is wanted before its time."""

    def supports(self, pci: str) -> bool:
        """Whether the GPU takes limits, asked once for each load of its driver; raises NvmlError."""
        return self._ports.limits.supports(pci)

    def shareable_bytes(self, pci: str) -> int:
        """The memory of a GPU that claims can divide among them; raises NvmlError."""
        return self._ports.limits.shareable_bytes(pci)

    def start(self, start: ContainerStart) -> None:
        """Limit a container that is about to run to its part of its claim's memory.

        Waits for what passes by itself, since a refused container may be its pod's end. It also waits for a
        kubelet that does not list containers: otherwise the first container of a claim would get all of its
        memory, and the second be refused. Only at the end of the patience do just the running containers
        count. Raises ClaimRefused, ClaimBlocked, NvmlError, StorageError, and NotAnswered once stopped; then
        the container must not run.
        """
        deadline, delay_seconds = time.monotonic() + self._patience_seconds, _FIRST_DELAY_SECONDS
        while True:
            pci, group = "", None
            is_last = time.monotonic() + _LONGEST_DELAY_SECONDS >= deadline
            try:
                pci = self._ports.allowances.of_start(start).pci  # a claim that has no part waits for nothing
                group = self._ports.cgroups.of_process(start.proc_cgroup)
                return self._start(start, pci, group, is_last=is_last)
            except DriverError as error:
                left_seconds = deadline - time.monotonic()
                is_gone = bool(pci) and (group is None or not self._ports.cgroups.is_there(group))
                if not error.retryable or left_seconds <= 0 or is_gone:
                    raise
                if self._stopped.wait(min(delay_seconds, left_seconds)):
                    raise NotAnswered from error
            delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)

    def stop(self) -> None:
        """Let nobody wait any more: another instance may answer."""
        self._stopped.set()

    def forget(self, uid: str) -> None:
        """Forget what the containers of a claim have, which is no longer prepared.

        A container that is there all the same stays limited till it ends. Raises StorageError, ClaimBlocked.
        """
        for claim_uid, pci in self._ports.ledger.places():
            if claim_uid == uid:
                with self._locks.holding([memory_key(pci)], _LOCK_SECONDS):
                    OneGpu(pci, self._ports).leave(uid)

    def run_once(self) -> None:
        """Read every limit back, set missing ones again, and divide the claims' memory again.

        A GPU that fails does not stop the others: see ``faults``. Raises StorageError.
        """
        looked_in = self._generation()
        self._has_parts = False  # before the ledger is read: a container that starts meanwhile sets it again
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        if gpus:
            self._has_parts = True
        listed = self._ask_kubelet() if gpus else None
        bursts = False
        for pci in gpus:
            faults, has_burst = self._look_after(pci, listed)
            bursts |= has_burst
            if faults is not None:
                with self._guard:
                    self._faults[pci] = faults | self._unreadable(pci)
        with self._guard:
            for pci in self._faults.keys() - set(gpus):
                del self._faults[pci]
            for pci in self._held_in.keys() - set(gpus):
                del self._held_in[pci]
            self._looked_in = looked_in
        self._bursts = bursts

    def look_at_driver(self) -> None:
        """Set the limits at once if the NVIDIA driver was loaded again, which lost them.

        Does nothing while no container of this instance has limits.
        """
        if not self._has_parts:
            return
        generation = self._generation()
        with self._guard:
            known = {self._looked_in, *self._held_in.values()}
        if generation and known != {generation}:
            self.wanted.set()

    def claims_changed(self) -> None:
        """Called when claims hold other devices: a burst of a container may have to end then."""
        if self._bursts:
            self.wanted.set()

    def faults(self) -> Mapping[Device, str]:
        """By claim UID and CDI device, why containers are not held to their memory, as seen last."""
        with self._guard:
            return {device: why for found in self._faults.values() for device, why in found.items()}

    def used(self) -> tuple[ContainerMemory, ...]:
        """What each live container has and uses; NVML is asked each time. Raises StorageError."""
        return self._uses.now()

    def _start(self, start: ContainerStart, pci: str, group: Cgroup, *, is_last: bool) -> None:
        """Do it once; ``is_last`` says that a kubelet that is silent is waited for no longer."""
        listed = (self._ask_kubelet() or {}) if is_last else self._listed()
        with self._locks.holding([memory_key(pci)], _LOCK_SECONDS):
            allowance = self._ports.allowances.of_start(start)
            self._refuse_unreadable(allowance)
            gpu = OneGpu(pci, self._ports)
            self._restore(gpu)
            portion = gpu.admit(_part(start, allowance, group), listed)
            self._has_parts = True
            self._bursts |= gpu.bursts
        _log.info(
            "container is held to its memory",
            uid=start.claim_uid,
            device=start.cdi_device,
            container=start.container,
            pod=f"{start.namespace}/{start.pod}",
            hard_bytes=portion.hard_bytes,
        )

    def _look_after(self, pci: str, listed: Listed | None) -> tuple[dict[Device, str] | None, bool]:
        """What is not held on a GPU, and whether any claim on it has a burst.

        None while somebody else works on it: that says nothing of what is held.
        """
        with ExitStack() as lock:
            try:
                lock.enter_context(self._locks.holding([memory_key(pci)], _LOCK_SECONDS))
            except ClaimBlocked as error:
                _log.info("memory limits of a GPU are looked at later", gpu=pci, error=error.logged)
                return None, True
            try:
                gpu = OneGpu(pci, self._ports)
                return self._look(gpu, listed), gpu.bursts
            except DriverError as error:
                _log.warning("memory limits of a GPU are not looked after", gpu=pci, error=error.logged)
                parts = self._ports.ledger.on_gpu(pci)
                return {(part.claim_uid, part.cdi_device): str(error) for part in parts}, True

    def _look(self, gpu: OneGpu, listed: Listed | None) -> dict[Device, str]:
        """Look after one GPU, whose lock is held."""
        faults = self._restore(gpu, again=True)
        if listed is not None:
            faults |= gpu.divide(listed)
        gpu.write()
        return faults

    def _restore(self, gpu: OneGpu, *, again: bool = False) -> dict[Device, str]:
        """Set the limits that are missing, where that was not yet done in this load of the driver."""
        generation = self._generation()
        with self._guard:
            was = self._held_in.get(gpu.pci)
        if was == generation and not again:
            return {}
        faults = gpu.restore()
        if not faults:
            with self._guard:
                self._held_in[gpu.pci] = generation
        return faults

    def _ask_kubelet(self) -> Listed | None:
        """What the kubelet lists; None if it does not answer, and then only running containers count."""
        try:
            return self._listed()
        except DriverError as error:
            _log.warning("how many containers have a claim is not known", error=error.logged)
            return None

    def _refuse_unreadable(self, allowance: Allowance) -> None:
        """Raise ClaimBlocked if what the other containers of the claim have cannot be read."""
        wrong = self._ports.ledger.wrong(allowance.device[0], allowance.pci)
        if wrong:
            raise ClaimBlocked(
                f"what the containers of claim {allowance.device[0]} have of GPU {allowance.pci} cannot be "
                f"read: {wrong}",
                "delete the pods of the claim, so that it is prepared anew",
            )

    def _unreadable(self, pci: str) -> dict[Device, str]:
        allowed = self._ports.allowances.on_gpu(pci, lambda: 0, ())
        found = {device: self._ports.ledger.wrong(device[0], pci) for device in allowed}
        return {device: f"its ledger cannot be read: {wrong}" for device, wrong in found.items() if wrong}


def _part(start: ContainerStart, allowance: Allowance, group: Cgroup) -> Part:
    """The part of a container that has none yet."""
    name = ContainerName(start.namespace, start.pod, start.container)
    return Part(*allowance.device, allowance.pci, group, start.container_id, name, Portion())


class _MemoryUses:
    """What each live container uses of the memory that it may have, looked up at each call.

    It takes no lock of a GPU, so no container waits for it.
    """

    def __init__(self, ports: MemoryPorts) -> None:
        self._ports = ports

    def now(self) -> tuple[ContainerMemory, ...]:
        """What containers have and use, sorted by claim, device and group; raises StorageError."""
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        return tuple(one for pci in gpus for one in self._on_gpu(pci))

    def _on_gpu(self, pci: str) -> Iterable[ContainerMemory]:
        parts = [part for part in self._ports.ledger.on_gpu(pci) if self._ports.cgroups.is_there(part.cgroup)]
        allowed = self._ports.allowances.on_gpu(pci, lambda: 0, ())
        try:
            told = self._ports.limits.glance(pci, (part.cgroup.path for part in parts))
        except NvmlError as error:
            _log.warning("used memory is not known", gpu=pci, error=error.logged)
            told = {}
        left = {part.cgroup: _used(told.get(part.cgroup.path)) for part in parts}
        counts = {group: sum(part.cgroup == group for part in parts) for group in left}
        for part in sorted(parts, key=lambda one: (*one.key[:2], one.cgroup.path)):
            one = allowed.get((part.claim_uid, part.cdi_device))
            counts[part.cgroup] -= 1
            used_bytes = _fill(left, part, last=not counts[part.cgroup])
            yield ContainerMemory(
                part.claim_uid,
                part.cdi_device,
                one.name if one is not None else "",
                pci,
                one.uuid if one is not None else "",
                part.name.namespace,
                part.name.pod,
                part.name.container,
                part.portion.soft_bytes,
                part.portion.hard_bytes,
                used_bytes,
            )


def _used(told: MemoryLimits | None) -> int | None:
    return None if told is None else told.used_bytes


def _fill(left: dict[Cgroup, int | None], part: Part, *, last: bool) -> int | None:
    """What of the use of a group counts for one of its parts: the first are filled before the next."""
    rest = left[part.cgroup]
    if rest is None:
        return None
    used_bytes = rest if last else min(rest, part.portion.hard_bytes)
    left[part.cgroup] = rest - used_bytes
    return used_bytes
