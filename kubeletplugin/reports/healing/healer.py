"""Resets GPUs when an admin asks for it: keeps new pods away, waits for the present ones, resets, publishes.

Nothing is taken from anybody: claims and processes that have a GPU are reported and waited for. Nothing is
changed during the wait, so the caller can cancel by hanging up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from driver.devices.node_state import BlockedPlacement, Healed
from driver.errors import ClaimBlocked, DriverError, NvmlError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Gpu
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import read_function
from driver.hardware.persistence import Persistence
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import boottime_ns
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.users import User, named
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.kubelet.wire.heal import HealProgress, HealRequest, HealStep, HoldingClaim, UsingProcess
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.reports.healing.records import HealRecords
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.sharing.claim_sharing import ClaimShares

CHECK_SECONDS = 1.0
"""How often to check whether processes that are in the way have ended; nothing reports that."""

_LOCK_SECONDS = 30.0

_GPU_DAEMONS = frozenset({"nvidia-persiste", "nv-fabricmanage"})
"""Daemons of the NVIDIA driver, by their names as the kernel cuts them (15 characters). They are not waited
for: the first closes a GPU when its persistence mode goes off, the second takes part in resets. Any pod can
use such a name, so the process has to belong to the node as well."""

_OWN_PROGRAMS = frozenset({"gpu-dra-control", "gpu-dra-kubelet"})
"""Our own programs, which close their GPUs on request. They too have to belong to the node."""

_log = get_logger("heal")

_RESET_TOGETHER = frozenset({"Pascal", "Volta", "Turing"})
"""The architectures with NVLinks before Ampere, in the words of the published attribute."""


class Healer:
    """Heals the GPUs of a node, one after the other. Safe to use from any thread."""

    def __init__(
        self,
        sysfs_root: Path,
        sessions: tuple[Discovery, Controllers],
        users: Users,
        gpu_reset: GpuReset,
        claims: tuple[Journal, KeyedLocks, ClaimShares],
        records: HealRecords,
        watch: NodeWatch,
        step: Callable[[str], None],
    ) -> None:
        """``sessions`` have NVML open on this node; ``users(function)`` returns who has a function open.

        ``claims`` are the journal, its locks, and the shares of GPUs. ``step(name)`` is called after each
        step.
        """
        self._sysfs_root = sysfs_root
        self._discovery = sessions[0]
        self._users = users
        self._resetting = _Resetting(sessions, gpu_reset, records, self._using, step)
        self._journal, self._locks, self._shares = claims
        self._records = records
        self._watch = watch
        self._step = step
        # One healing at a time: it closes the NVML sessions of the whole node.
        self._busy = Lock()
        # Until the first finish(): an earlier process may have crashed during a reset.
        self._may_be_unfinished = True
        self._publish_healed()

    def heal(self, request: HealRequest) -> Iterator[HealProgress]:
        """Heal a GPU step by step; the last step says how it ended.

        The caller cancels by taking no further step. A DriverError becomes the step ``failed``.
        """
        gpus: tuple[PciAddress, ...] = ()
        try:
            gpus = self._group_of(request.gpu)
            if request.reset:
                yield from self._heal(gpus, request.wait_seconds)
            else:
                yield self._in_the_way("looked", gpus)
        except DriverError as error:
            _log.warning("cannot heal the GPU", gpus=list(map(str, gpus)) or request.gpu, error=error.logged)
            yield HealProgress("failed", gpus, message=str(error))

    def finish(self) -> None:
        """Restore settings that a process which ended during a reset has left changed.

        Does nothing unless there may be any. A failure is logged, and the next call tries again.
        """
        if not self._may_be_unfinished:
            return
        left = False
        for record in self._records.records():
            if record.persistent:
                try:
                    with self._locks.holding([gpu_key(record.pci)], _LOCK_SECONDS):
                        self._resetting.restore([PciAddress.parse(record.pci)])
                except DriverError as error:
                    left = True
                    _log.warning(
                        "cannot turn persistence mode on again yet", gpu=record.pci, error=error.logged
                    )
        self._may_be_unfinished = left

    def _heal(self, gpus: tuple[PciAddress, ...], wait_seconds: float) -> Iterator[HealProgress]:
        # A healing may wait for an hour, so a second one is refused at once.
        if not self._busy.acquire(blocking=False):
            raise ClaimBlocked("another GPU of this node is being healed", "try again when that has ended")
        try:
            with self._kept_away(gpus):
                yield from self._wait(gpus, wait_seconds)
                yield HealProgress("resets", gpus)
                self._reset(gpus)
            _log.info("GPU healed", gpus=list(map(str, gpus)))
            yield HealProgress("healed", gpus)
        finally:
            self._busy.release()

    def _group_of(self, text: str) -> tuple[PciAddress, ...]:
        """The GPUs that are reset together with the named one; raises ClaimBlocked if there is none."""
        pci, gpus = _address(text), tuple[Gpu, ...]()
        try:
            gpus = self._discovery.snapshot().gpus
        except LetGo:
            # Another part of this process has closed NVML for a moment; the caller tries again.
            raise
        except NvmlError as error:
            # The fault may be in the driver itself. nvidia-smi then says which others must be reset too.
            _log.warning("cannot read which GPUs are linked", error=error.logged)
        pci = pci or next((gpu.pci for gpu in gpus if gpu.uuid == text), None)
        if pci is None:
            raise ClaimBlocked(f"this node has no GPU {text}", "name one by its PCI address")
        found = reset_together(pci, gpus)
        for one in found:
            function = read_function(self._sysfs_root, one)
            if function is None or not function.is_gpu:
                raise ClaimBlocked(f"there is no GPU at {one}", "check that it is on the bus: lspci -d 10de:")
            # nvidia-smi resets only GPUs that the NVIDIA driver has.
            if function.driver != NVIDIA_KERNEL_DRIVER:
                raise ClaimBlocked(
                    f"GPU {one} has the kernel driver {function.driver or 'none'}, not NVIDIA's",
                    "a virtual machine resets its GPUs itself; end it, or bind the GPU to nvidia",
                )
        return found

    def _in_the_way(self, step: HealStep, gpus: tuple[PciAddress, ...]) -> HealProgress:
        """The claims and processes that are in the way now, without our own processes."""
        # One that is being released has no container any more. What it has on a lost GPU goes with the reset,
        # and what a process still uses is found by the process.
        claims = {
            entry.uid: HoldingClaim(entry.namespace, entry.name, entry.uid)
            for place in self._places(gpus)
            for entry in self._journal.holders(place)
            if entry.state != "releasing"
        }
        processes = {
            user.pid: UsingProcess(user.pid, user.name, user.pod_uid)
            for user in self._using(gpus)
            if not _is_one_of(_OWN_PROGRAMS, user)
        }
        return HealProgress(step, gpus, tuple(claims.values()), tuple(processes.values()))

    def _places(self, gpus: Sequence[PciAddress]) -> Iterator[str]:
        """The addresses that claims may have devices at: the GPUs and their virtual functions."""
        for pci in gpus:
            function = read_function(self._sysfs_root, pci)
            # A vGPU or a passed through function is a part of the GPU that a reset would take away.
            yield from map(str, (pci, *(function.virtual if function else ())))

    def _using(self, gpus: Sequence[PciAddress]) -> list[User]:
        functions = [read_function(self._sysfs_root, pci) for pci in gpus]
        users = [user for function in functions if function for user in self._users(function)]
        return [user for user in users if not _is_one_of(_GPU_DAEMONS, user)]

    @contextmanager
    def _kept_away(self, gpus: Sequence[PciAddress]) -> Iterator[None]:
        """Keep the scheduler from choosing the GPUs' devices during the block."""
        why = "it is being reset, or waits for its reset"
        self._watch.healing(tuple(BlockedPlacement(pci, None, "healing", why) for pci in gpus))
        try:
            yield
        finally:
            self._watch.healing(())

    def _wait(self, gpus: tuple[PciAddress, ...], wait_seconds: float) -> Iterator[HealProgress]:
        """Wait until nothing is in the way; raises ClaimBlocked after the time."""
        deadline = time.monotonic() + wait_seconds
        while True:
            seen = self._in_the_way("waits", gpus)
            if not seen.claims and not seen.processes:
                return
            if time.monotonic() >= deadline:
                raise ClaimBlocked(
                    f"not reset, because after {wait_seconds:.0f} s there are still {_named(seen)}",
                    "end them, then try again",
                )
            yield seen
            # Returns early if a claim is released.
            self._journal.wait_for_release(CHECK_SECONDS)

    def _reset(self, gpus: tuple[PciAddress, ...]) -> None:
        """Reset the GPUs, after undoing what shares of claims have left there."""
        reach = self._shares.gpus_shared_together(map(str, gpus))
        with self._locks.holding(map(gpu_key, reach), _LOCK_SECONDS):
            # A claim may have come before the locks were taken; from now on none can.
            seen = self._in_the_way("looked", gpus)
            if seen.claims:
                raise ClaimBlocked(f"not reset, because of new users: {_named(seen)}", "try again")
            # What ended shares left behind, such as compute modes and time-slices, is undone before.
            self._shares.clear(reach, "")
            self._step("sharing cleared")
            self._may_be_unfinished = True
            try:
                self._resetting.run(gpus)
            finally:
                self._publish_healed()

    def _publish_healed(self) -> None:
        healed = (
            Healed(PciAddress.parse(record.pci), record.healed_boottime_milliseconds)
            for record in self._records.records()
            if record.healed_boottime_milliseconds
        )
        self._watch.healed(tuple(healed))


def _is_one_of(programs: frozenset[str], user: User) -> bool:
    return user.is_of_node and user.name in programs


def _address(text: str) -> PciAddress | None:
    """The GPU of a PCI address or of a device's name; None for any other text."""
    try:
        return PciAddress.parse(text)
    except ValueError:
        name = KINDS.parse(text)
        return name.pci if name is not None else None


def _named(seen: HealProgress) -> str:
    """The claims and processes in the way, for a sentence."""
    claims = [f"claim {claim}" for claim in seen.claims]
    processes = [
        f"process {one.pid} ({one.name}{f' of pod {one.pod_uid}' if one.pod_uid else ''})"
        for one in seen.processes
    ]
    return ", ".join((*claims, *processes))


def reset_together(pci: PciAddress, gpus: Iterable[Gpu]) -> tuple[PciAddress, ...]:
    """The GPUs that are reset together with this one, itself included, sorted; the rules of nvidia-smi(1).

    A GPU of the Ampere architecture or newer is reset by itself. An older one is reset with all GPUs that
    NVLinks connect it with, directly, by way of other GPUs, or over NVSwitches.
    """
    known = {gpu.pci: gpu for gpu in gpus}
    found, following = {pci}, [pci]
    while following:
        for other in _linked(known.get(following.pop()), known):
            if other not in found:
                found.add(other)
                following.append(other)
    return tuple(sorted(found))


def _linked(gpu: Gpu | None, known: Mapping[PciAddress, Gpu]) -> set[PciAddress]:
    if gpu is None or gpu.architecture not in _RESET_TOGETHER:
        return set()
    over_switches = {pci for pci, other in known.items() if gpu.switch_links and other.switch_links}
    return {link.peer for link in gpu.links} | over_switches


class _Resetting:
    """Resets GPUs that nobody uses any more, and restores their settings. Callers hold the locks of the GPUs.

    For a reset, the NVML sessions of this process and of the controllers are closed, and persistence mode is
    off. The mode outlives this process, so it is recorded before it is turned off: the plugin may crash after
    any step.

    ``using(gpus)`` returns the processes that have any of them open, without this one.
    """

    def __init__(
        self,
        sessions: tuple[Discovery, Controllers],
        gpu_reset: GpuReset,
        records: HealRecords,
        using: Callable[[Sequence[PciAddress]], Sequence[User]],
        step: Callable[[str], None],
    ) -> None:
        """``sessions`` have NVML open on this node; ``step(name)`` is called after each step."""
        self._discovery, self._controllers = sessions
        self._persistence = Persistence(self._discovery)
        self._gpu_reset = gpu_reset
        self._records = records
        self._using = using
        self._step = step

    def run(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them together; raises DriverError, and then restores their settings as far as possible."""
        try:
            # In this order: NVML has to be open for persistence mode, and closed for the reset.
            self._without_persistence(gpus)
            self._reset(gpus)
        except DriverError:
            self._restore_if_possible(gpus)
            raise
        self.restore(gpus)
        for pci in gpus:
            self._check(pci)

    def restore(self, gpus: Sequence[PciAddress]) -> None:
        """Turn persistence mode on again if it was on before; raises NvmlError, StorageError."""
        for pci in gpus:
            record = self._records.get(pci)
            if record.persistent:
                self._persistence.set(pci, on=True)
                self._step("persistence on")
                # After the mode is on: a crash in between turns it on once more, which does no harm.
                self._records.put(replace(record, persistent=False))
                self._step("persistence put back")

    def _without_persistence(self, gpus: Sequence[PciAddress]) -> None:
        """Turn persistence mode off, by which the driver or nvidia-persistenced keeps the GPUs open."""
        for pci in gpus:
            if self._is_persistent(pci):
                # Before the mode goes off, so that it is turned on again even after a crash.
                self._records.put(replace(self._records.get(pci), persistent=True))
                self._step("persistence noted")
                self._persistence.set(pci, on=False)
                self._step("persistence off")

    def _is_persistent(self, pci: PciAddress) -> bool:
        try:
            return bool(self._persistence.is_on(pci))
        except NvmlError as error:  # a faulty GPU may not answer
            _log.warning("cannot read persistence mode", gpu=str(pci), error=error.logged)
            return False

    def _reset(self, gpus: Sequence[PciAddress]) -> None:
        """Reset the GPUs while no NVML session is open on this node, and record the time."""
        with self._controllers.letting_go(), self._own_session_ended():
            self._step("let go")
            # Checked last, with all sessions closed: whoever has a GPU open now would make the reset fail.
            using = self._using(gpus)
            if using:
                raise ClaimBlocked(
                    f"not reset, because it is used by {named(using)}", "end them, then try again"
                )
            self._gpu_reset.reset(gpus)
            self._step("reset")
            now = boottime_ns() // 1_000_000
            for pci in gpus:
                self._records.put(replace(self._records.get(pci), healed_boottime_milliseconds=now))
                self._step("healed noted")

    @contextmanager
    def _own_session_ended(self) -> Iterator[None]:
        """Close NVML in this process; raises ClaimBlocked if a call hangs, which keeps the GPU open."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._discovery.let_go())
            except NvmlError as error:
                raise ClaimBlocked(
                    f"not reset: {error.what}",
                    "delete the plugin's pod on the node and try again; if that does not help, restart the "
                    "machine",
                ) from error
            yield

    def _restore_if_possible(self, gpus: Sequence[PciAddress]) -> None:
        """As ``restore``, but a failure is only logged; ``Healer.finish`` tries again."""
        try:
            self.restore(gpus)
        except DriverError as error:
            _log.warning("cannot turn persistence mode on again yet", error=error.logged)

    def _check(self, pci: PciAddress) -> None:
        """Raise ClaimBlocked unless NVML has the GPU again."""
        try:
            # This opens a new NVML session.
            self._discovery.identity(pci)
        except NvmlError as error:
            raise ClaimBlocked(
                f"GPU {pci} was reset but does not answer: {error.what}", "restart the machine"
            ) from error
