"""Resets GPUs when an admin asks for it: keeps new pods away, waits for those that are there, resets, takes
back.

Nothing is taken from anybody: claims and processes that have a GPU are named and waited for. While it waits
nothing is changed, so whoever asked may call it off by going away.
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
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.users import User, named
from kubeletplugin.kubelet.wire.controllers import Controllers
from kubeletplugin.kubelet.wire.heal import HealProgress, HealStep, HealWish, HoldingClaim, UsingProcess
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.reports.healing.records import HealRecords
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.sharing.claim_sharing import ClaimShares

LOOK_SECONDS = 1.0
"""So often a heal looks whether what it waits for has gone: processes that end tell nobody."""

_LOCK_SECONDS = 30.0

_SERVE_THE_GPU = frozenset({"nvidia-persiste", "nv-fabricmanage"})
"""Programs that belong to the GPUs, as the kernel cuts their names. Whether one of them is in the way is for
the NVIDIA driver to say: the first closes a GPU whose persistence mode goes off, the second takes part in
resets. Any pod can call a process so, so it has to be one of the node as well."""

_LETS_GO = frozenset({"gpu-dra-control", "gpu-dra-kubelet"})
"""Our own programs, which have GPUs open until they are asked to let go; the same holds of their names."""

_log = get_logger("heal")

_TOGETHER = frozenset({"Pascal", "Volta", "Turing"})
"""The architectures with NVLinks before Ampere, as the published attribute has them."""


class Healer:
    """Heals the GPUs of a node, one after the other. Safe to use from every thread."""

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
        """``sessions`` are who has NVML open on this node, ``users(function)`` who has a function open.

        ``claims`` tell what they hold and how GPUs are shared, ``step(name)`` follows the steps.
        """
        self._sysfs_root = sysfs_root
        self._discovery = sessions[0]
        self._users = users
        self._resetting = _Resetting(sessions, gpu_reset, records, self._using, step)
        self._journal, self._locks, self._shares = claims
        self._records = records
        self._watch = watch
        self._step = step
        self._busy = Lock()
        self._may_be_unfinished = True
        self._tell_healed()

    def heal(self, wish: HealWish) -> Iterator[HealProgress]:
        """Do what is wished, step by step; the last step says how it ended.

        The caller cancels by taking no further step. A DriverError becomes the step ``failed``.
        """
        gpus: tuple[PciAddress, ...] = ()
        try:
            gpus = self._together(wish.gpu)
            if wish.reset:
                yield from self._heal(gpus, wish.wait_seconds)
            else:
                yield self._look("looked", gpus)
        except DriverError as error:
            _log.warning("GPU not healed", gpus=list(map(str, gpus)) or wish.gpu, error=error.logged)
            yield HealProgress("failed", gpus, message=str(error))

    def finish(self) -> None:
        """Put back what a process that ended in the middle has left; does nothing unless there may be
        something.

        What fails is tried with the next call; the log says it.
        """
        if not self._may_be_unfinished:
            return
        left = False
        for record in self._records.look():
            if record.persistent:
                try:
                    with self._locks.holding([gpu_key(record.pci)], _LOCK_SECONDS):
                        self._resetting.put_back([PciAddress.parse(record.pci)])
                except DriverError as error:
                    left = True
                    _log.warning("persistence mode not put back yet", gpu=record.pci, error=error.logged)
        self._may_be_unfinished = left

    def _heal(self, gpus: tuple[PciAddress, ...], wait_seconds: float) -> Iterator[HealProgress]:
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

    def _together(self, text: str) -> tuple[PciAddress, ...]:
        """The GPUs that are reset with the one that is named; raises ClaimBlocked where there is none."""
        pci, gpus = _address(text), tuple[Gpu, ...]()
        try:
            gpus = self._discovery.snapshot().gpus
        except LetGo:
            raise
        except NvmlError as error:
            # What is ill may be the driver: then nvidia-smi says which others have to be reset, too.
            _log.warning("which GPUs are linked is not known", error=error.logged)
        pci = pci or next((gpu.pci for gpu in gpus if gpu.uuid == text), None)
        if pci is None:
            raise ClaimBlocked(f"this node has no GPU {text}", "name one by its PCI address")
        found = reset_together(pci, gpus)
        for one in found:
            function = read_function(self._sysfs_root, one)
            if function is None or not function.is_gpu:
                raise ClaimBlocked(f"there is no GPU at {one}", "see that it is on the bus: lspci -d 10de:")
            if function.driver != NVIDIA_KERNEL_DRIVER:
                raise ClaimBlocked(
                    f"GPU {one} has the kernel driver {function.driver or 'none'}, not NVIDIA's",
                    "a virtual machine resets what it is given; end it, or bind the GPU to nvidia",
                )
        return found

    def _look(self, step: HealStep, gpus: tuple[PciAddress, ...]) -> HealProgress:
        """What is in the way now, except our own processes, which let go when they are asked."""
        claims = {
            entry.uid: HoldingClaim(entry.namespace, entry.name, entry.uid)
            for place in self._places(gpus)
            for entry in self._journal.holders(place)
        }
        processes = {
            user.pid: UsingProcess(user.pid, user.name, user.pod_uid)
            for user in self._using(gpus)
            if not _is_one_of(_LETS_GO, user)
        }
        return HealProgress(step, gpus, tuple(claims.values()), tuple(processes.values()))

    def _places(self, gpus: Sequence[PciAddress]) -> Iterator[str]:
        """The addresses where claims may have something: the GPUs and their virtual functions."""
        for pci in gpus:
            function = read_function(self._sysfs_root, pci)
            yield from map(str, (pci, *(function.virtual if function else ())))

    def _using(self, gpus: Sequence[PciAddress]) -> list[User]:
        functions = [read_function(self._sysfs_root, pci) for pci in gpus]
        users = [user for function in functions if function for user in self._users(function)]
        return [user for user in users if not _is_one_of(_SERVE_THE_GPU, user)]

    @contextmanager
    def _kept_away(self, gpus: Sequence[PciAddress]) -> Iterator[None]:
        """Keep the scheduler from choosing the GPUs' devices during the block."""
        why = "it is being reset, or waits for that"
        self._watch.healing(tuple(BlockedPlacement(pci, None, "healing", why) for pci in gpus))
        try:
            yield
        finally:
            self._watch.healing(())

    def _wait(self, gpus: tuple[PciAddress, ...], wait_seconds: float) -> Iterator[HealProgress]:
        """Wait until nothing is in the way; raises ClaimBlocked when the time is over."""
        deadline = time.monotonic() + wait_seconds
        while True:
            seen = self._look("waits", gpus)
            if not seen.claims and not seen.processes:
                return
            if time.monotonic() >= deadline:
                raise ClaimBlocked(
                    f"not reset, since after {wait_seconds:.0f} s there are still {_named(seen)}",
                    "end them, then try again",
                )
            yield seen
            self._journal.wait_for_release(LOOK_SECONDS)

    def _reset(self, gpus: tuple[PciAddress, ...]) -> None:
        """Reset the GPUs after undoing what shares of claims have left there."""
        reach = self._shares.reach(map(str, gpus))
        with self._locks.holding(sorted(map(gpu_key, reach)), _LOCK_SECONDS):
            seen = self._look("looked", gpus)
            if seen.claims:
                raise ClaimBlocked(f"not reset, since there came {_named(seen)}", "try again")
            self._shares.clear(reach, "")
            self._step("sharing cleared")
            self._may_be_unfinished = True
            try:
                self._resetting.run(gpus)
            finally:
                self._tell_healed()

    def _tell_healed(self) -> None:
        healed = (
            Healed(PciAddress.parse(record.pci), record.healed_unix_milliseconds)
            for record in self._records.look()
            if record.healed_unix_milliseconds
        )
        self._watch.healed(tuple(healed))


def _is_one_of(programs: frozenset[str], user: User) -> bool:
    return user.is_of_node and user.name in programs


def _address(text: str) -> PciAddress | None:
    """The GPU that a PCI address or the name of a device says; None for another text."""
    try:
        return PciAddress.parse(text)
    except ValueError:
        name = KINDS.parse(text)
        return name.pci if name is not None else None


def _named(seen: HealProgress) -> str:
    """What is in the way, in a sentence."""
    claims = [f"claim {claim}" for claim in seen.claims]
    processes = [
        f"process {one.pid} ({one.name}{f' of pod {one.pod_uid}' if one.pod_uid else ''})"
        for one in seen.processes
    ]
    return ", ".join((*claims, *processes))


def reset_together(pci: PciAddress, gpus: Iterable[Gpu]) -> tuple[PciAddress, ...]:
    """The GPUs that are reset together with one of them, itself included, sorted: the rules of nvidia-smi(1).

    From the Ampere architecture on a GPU is reset by itself. With an older one go all GPUs that NVLinks
    connect with it, directly, over others or over NVSwitches.
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
    if gpu is None or gpu.architecture not in _TOGETHER:
        return set()
    over_switches = {pci for pci, other in known.items() if gpu.switch_links and other.switch_links}
    return {link.peer for link in gpu.links} | over_switches


class _Resetting:
    """Resets GPUs that nobody uses any more, and restores their settings. Callers hold the locks of the GPUs.

    A reset needs what passthrough needs: the NVML sessions of this process and of the controllers are closed,
    and persistence mode is off. Only the mode outlives this process, so it is written down before it goes
    off; any step can be the last before a crash.

    ``using(gpus)`` are the processes that have any of them open, but for this one.
    """

    def __init__(
        self,
        sessions: tuple[Discovery, Controllers],
        gpu_reset: GpuReset,
        records: HealRecords,
        using: Callable[[Sequence[PciAddress]], Sequence[User]],
        step: Callable[[str], None],
    ) -> None:
        """``sessions`` are who has NVML open on this node; ``step(name)`` follows the steps."""
        self._discovery, self._controllers = sessions
        self._persistence = Persistence(self._discovery)
        self._gpu_reset = gpu_reset
        self._records = records
        self._using = using
        self._step = step

    def run(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them together; raises DriverError, and then restores their settings as far as possible."""
        try:
            self._without_persistence(gpus)
            self._reset(gpus)
        except DriverError:
            self._put_back_if_possible(gpus)
            raise
        self.put_back(gpus)
        for pci in gpus:
            self._check(pci)

    def put_back(self, gpus: Sequence[PciAddress]) -> None:
        """Turn persistence mode on again where it was on before; raises NvmlError, StorageError."""
        for pci in gpus:
            record = self._records.get(pci)
            if record.persistent:
                self._persistence.set(pci, on=True)
                self._step("persistence on")
                self._records.put(replace(record, persistent=False))
                self._step("persistence put back")

    def _without_persistence(self, gpus: Sequence[PciAddress]) -> None:
        """Keep nvidia-persistenced, or the kernel driver itself, from keeping the GPUs initialised."""
        for pci in gpus:
            if self._is_persistent(pci):
                self._records.put(replace(self._records.get(pci), persistent=True))
                self._step("persistence noted")
                self._persistence.set(pci, on=False)
                self._step("persistence off")

    def _is_persistent(self, pci: PciAddress) -> bool:
        try:
            return bool(self._persistence.is_on(pci))
        except NvmlError as error:  # it is ill, so that it may not answer
            _log.warning("persistence mode is not known", gpu=str(pci), error=error.logged)
            return False

    def _reset(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them while no session of NVML is open on this node, and write down when."""
        with self._controllers.letting_go(), self._own_session_ended():
            self._step("let go")
            using = self._using(gpus)
            if using:
                raise ClaimBlocked(
                    f"not reset, since it is used by {named(using)}", "end them, then try again"
                )
            self._gpu_reset.reset(gpus)
            self._step("reset")
            now = time.time_ns() // 1_000_000
            for pci in gpus:
                self._records.put(replace(self._records.get(pci), healed_unix_milliseconds=now))
                self._step("healed noted")

    @contextmanager
    def _own_session_ended(self) -> Iterator[None]:
        """Raises ClaimBlocked where a call into a GPU hangs: what hangs has the GPU open."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._discovery.let_go())
            except NvmlError as error:
                raise ClaimBlocked(
                    f"not reset: {error.what}",
                    "delete the plugin's pod on the node and ask again; where it stays, restart the machine",
                ) from error
            yield

    def _put_back_if_possible(self, gpus: Sequence[PciAddress]) -> None:
        """As ``put_back``; what cannot be put back now is put back later."""
        try:
            self.put_back(gpus)
        except DriverError as error:
            _log.warning("persistence mode not put back yet", error=error.logged)

    def _check(self, pci: PciAddress) -> None:
        """Raise ClaimBlocked unless NVML has the GPU again."""
        try:
            self._discovery.identity(pci)
        except NvmlError as error:
            raise ClaimBlocked(
                f"GPU {pci} was reset and does not answer: {error.what}", "restart the machine"
            ) from error
