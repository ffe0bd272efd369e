"""Works out the shares of one claim, and keeps its GPUs shared while claims hold them, also after crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from driver.devices.memory_limits import BY_CGROUP, MEMORY_LIMITS
from driver.devices.node_state import BlockedPlacement
from driver.errors import ClaimBlocked, DriverError
from driver.kinds.registry import KINDS
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.journal.journal import Journal
from kubeletplugin.claims.journal.locks import KeyedLocks, gpu_key
from kubeletplugin.devices.host.driver_programs import ProgramHangs
from kubeletplugin.devices.kinds.kind import NodeKinds
from kubeletplugin.kubelet.wire.mps_daemon import MpsState
from kubeletplugin.kubelet.wire.planned import PlannedDevice
from kubeletplugin.reports.node_watch import NodeWatch
from kubeletplugin.reports.published import PublishedDevices
from kubeletplugin.sharing.gpus import Member, NotReady, Sharing, cuda_uuid, members_of, members_of_entry
from kubeletplugin.sharing.memory.gpu_limits import GpuLimits
from kubeletplugin.sharing.mps_client import MpsClient
from kubeletplugin.sharing.shares import (
    Shareable,
    memory_limit_bytes,
    needs_published_memory,
    refuse_conflicts,
    refuse_overpromised,
    share_records,
)

_log = get_logger("sharing")

_UNSEEN = "since its ResourceSlice was not seen yet"
_WAIT = "wait for the controller to publish it"


class ClaimShares:
    """The shares of one node's claims. Callers hold the locks of the claim and of its GPUs."""

    def __init__(
        self,
        sharing: Sharing,
        kinds: NodeKinds,
        journal: Journal,
        published: PublishedDevices,
        limits: GpuLimits,
    ) -> None:
        self._sharing = sharing
        self._kinds = kinds
        self._journal = journal
        self._published = published
        self._limits = limits

    def with_shares(
        self, uid: str, planned: Sequence[PlannedDevice], held: Sequence[HeldDevice]
    ) -> tuple[HeldDevice, ...]:
        """The devices that the claim is about to hold, with what it may use of each.

        Raises ClaimRefused for limits above a share, DeviceHeld if other claims leave no room, NotReady if
        the share is not known yet or a published limit cannot be enforced, NvmlError.
        """
        both = list(zip(planned, held, strict=True))
        shareables = [self._shareable(*one) for one in both]
        unknown = next((one.device for one in shareables if needs_published_memory(one)), None)
        if unknown is not None:
            raise NotReady(f"it is not known whether the claim has all of {unknown}, {_UNSEEN}", _WAIT)
        records = share_records(shareables)
        found = tuple(
            replace(one, share=share, memory_limit_bytes=memory_limit_bytes(shareable, share))
            for one, shareable, share in zip(held, shareables, records, strict=True)
        )
        memory = [one.memory_bytes for one in shareables]
        # Only a device that is published for sharing can have shares of other claims beside this one.
        if any(device.name.shared is not None for device in planned):
            holders = tuple(self._holders(one.pci for one in found))
            refuse_conflicts(uid, found, memory, holders)
            refuse_overpromised(uid, found, memory, holders)
        return found

    def gpus_shared_together(self, gpus: Iterable[str]) -> set[str]:
        """These GPUs, and those that were shared together with one of them, whose locks ``clear`` needs too.

        Needs no locks itself. Raises StorageError.
        """
        wanted = set(gpus)
        return wanted.union(*(record.gpus for record in self._sharing.records_on(wanted)))

    def clear(self, gpus: Iterable[str], uid: str) -> None:
        """Put back the GPUs that no claim but ``uid`` has a share of any more; raises DriverError."""
        locked = set(gpus)
        for record in self._sharing.records_on(locked):
            # One share is enough to keep it: there may be hundreds.
            if any(self._each_member(record.group, record.gpus, uid)) or self._is_lost(record.gpus):
                continue
            # The record may be newer than the caller's locks.
            if not locked.issuperset(record.gpus):
                raise NotReady(
                    f"GPUs {', '.join(record.gpus)} have just been shared together", "it is tried again"
                )
            self._sharing.settle(record.group, ())

    def join(self, entry: Entry) -> tuple[str, ...]:
        """Set the claim's GPUs up for its shares; returns messages about what the GPUs do not support.

        Raises DriverError; the caller then has to call ``leave``.
        """
        notes = [
            self._sharing.settle(group, self._members(group, gpus))
            for group, gpus in groups_of(entry).items()
        ]
        return tuple(note for note in notes if note is not None)

    def leave(self, entry: Entry) -> None:
        """Set the claim's GPUs up for the remaining claims, or put them back.

        An error is logged and not raised: the kubelet would keep the pod until unprepare succeeds. The GPU
        is put back later, at the latest before it is handed out again.
        """
        for group, gpus in groups_of(entry).items():
            try:
                if not self._is_lost(gpus):
                    mine = members_of_entry(group, entry)
                    self._sharing.settle(group, self._members(group, gpus, without=entry.uid), mine)
            except DriverError as error:
                _log.warning(
                    "cannot undo the sharing of GPUs yet", group=group, uid=entry.uid, error=str(error)
                )

    def settle(self, group: str, gpus: Iterable[str]) -> None:
        """Set a group up as the journal says, after reading the GPU again; raises DriverError."""
        members = self._members(group, gpus)
        # Only a newer version knows this kind of device, so its share stays as that version left it.
        if not all(held.offered is not None for _, held in members):
            return
        if members:
            self._sharing.note_lost_settings(group)
        if members or not self._is_lost(gpus):
            self._sharing.settle(group, members)

    def end_unrecorded(self, daemon: str, gpus: Iterable[str]) -> None:
        """End a daemon that no record explains, unless a claim on its GPUs may use it."""
        if not self._is_lost(gpus):
            self._sharing.end_unrecorded(daemon)

    def _members(self, group: str, gpus: Iterable[str], without: str = "") -> tuple[Member, ...]:
        return tuple(self._each_member(group, gpus, without))

    def _each_member(self, group: str, gpus: Iterable[str], without: str) -> Iterator[Member]:
        return members_of(group, self._holders(gpus), self._journal, without)

    def _holders(self, gpus: Iterable[str]) -> Iterable[Entry]:
        """The claims that hold a device on the GPUs, each once."""
        return {entry.uid: entry for pci in gpus for entry in self._journal.holders(pci)}.values()

    def _is_lost(self, gpus: Iterable[str]) -> bool:
        """Whether the entry of a claim on the GPUs was lost. It may have a share."""
        return any(entry.state == "lost" for entry in self._holders(gpus))

    def _shareable(self, device: PlannedDevice, held: HeldDevice) -> Shareable:
        """The device with everything that its limits depend on; raises ClaimBlocked, NotReady, NvmlError."""
        limits = self._has_limits(device, held)
        name = device.allocated.device
        published_bytes = self._published.memory_of(name)
        memory_bytes = self._memory_bytes(device, held, limits=limits)
        return Shareable(
            name,
            device.allocated.request,
            device.sharing,
            cuda_uuid(held),
            memory_bytes,
            self._divided_bytes(device, held, memory_bytes, published_bytes),
            published_bytes,
            whole=device.name.kind.has_modes,
            limits=limits,
        )

    def _has_limits(self, device: PlannedDevice, held: HeldDevice) -> bool:
        """Whether the device was published with memory limits, and the NVIDIA driver can enforce them.

        Raises NotReady if it cannot, NvmlError.
        """
        sharing, name = device.sharing, device.allocated.device
        if sharing is None or sharing.form is None or not device.name.kind.has_modes:
            return False
        published = self._published.attributes_of(name)
        # The scheduler chose the device by its slice. So a claim gets no limits that were not published, and
        # is not prepared without those that were.
        if published and published.get(MEMORY_LIMITS) != {"string": BY_CGROUP}:
            return False
        if self._limits.supports(held.pci):
            if published:
                return True
            raise NotReady(f"it is not known whether the memory of {name} has limits, {_UNSEEN}", _WAIT)
        if published:
            raise NotReady(
                f"{name} was published with memory limits, but the NVIDIA driver does not enforce them on "
                "its GPU",
                "wait until the controller has published the change, then delete the pod, so that it is "
                "scheduled again; limits need driver 615 or newer, and cgroup v2",
            )
        return False

    def _memory_bytes(self, device: PlannedDevice, held: HeldDevice, *, limits: bool) -> int:
        """The memory of a device, 0 if no limit depends on it; raises ClaimBlocked, NvmlError."""
        form = device.sharing.form if device.sharing else None
        if not limits and (form is None or not (form.strategy == "MPS" or form.memory)):
            return 0
        found = self._kinds.of(held).memory_bytes(held)
        if not found:
            raise ClaimBlocked(
                f"the memory of {device.allocated.device} is not known, so its shares cannot have limits",
                "check whether nvidia-smi shows it on the node",
            )
        return found

    def _divided_bytes(
        self, device: PlannedDevice, held: HeldDevice, memory_bytes: int, published_bytes: int | None
    ) -> int:
        """The memory of a device that claims can divide, 0 if no limit depends on it; raises NvmlError."""
        # As published, so that equal shares stay equal whatever NVML reports meanwhile.
        if published_bytes:
            return min(memory_bytes, published_bytes)
        # Without what the NVIDIA driver reserves for itself. Of a partition it reserves nothing.
        if memory_bytes and device.name.kind.has_modes:
            return self._limits.shareable_bytes(held.pci)
        return memory_bytes


def groups_of(entry: Entry) -> dict[str, tuple[str, ...]]:
    """The groups in which the claim has shares, each with the addresses of its GPUs."""
    found: dict[str, set[str]] = {}
    for held in entry.devices:
        if held.share is not None:
            found.setdefault(held.share.group, set()).add(held.pci)
    return {group: tuple(sorted(gpus)) for group, gpus in sorted(found.items())}


_LOCK_SECONDS = 5.0


class SharingReconciler:
    """Makes the sharing of GPUs what the journal says, after crashes and when an MPS daemon has ended.

    It finishes interrupted prepares and unprepares, and ends daemons without a share. It settles every group
    in each pass; an error in one group does not stop the others. ``watch`` gets the states of the daemons,
    and the GPUs for which a program of the NVIDIA driver hangs.
    """

    def __init__(
        self,
        sharing: Sharing,
        shares: ClaimShares,
        journal: Journal,
        locks: KeyedLocks,
        mps: MpsClient,
        watch: NodeWatch,
    ) -> None:
        self._sharing = sharing
        self._shares = shares
        self._journal = journal
        self._locks = locks
        self._mps = mps
        self._watch = watch
        self._hanging: tuple[BlockedPlacement, ...] = ()
        self._daemons: tuple[str, ...] = ()

    def run_once(self) -> None:
        """Set every group up as the journal says, and end the daemons that belong to none."""
        records = self._sharing.recorded()
        if any(record.daemon for record in records):
            self._mps.note_use()
        groups = {record.group: set(record.gpus) for record in records}
        # A group whose record was lost still has claims in the journal.
        for entry in self._journal.held():
            for group, gpus in groups_of(entry).items() if entry.state == "prepared" else ():
                groups.setdefault(group, set()).update(gpus)
        hanging: list[BlockedPlacement] = []
        for group, concerned in sorted(groups.items()):
            hanging += self._under_lock(group, concerned, partial(self._shares.settle, group, concerned))
        if tuple(hanging) != self._hanging:
            self._hanging = tuple(hanging)
            self._watch.hanging(self._hanging)
        # The records are from the beginning of this pass. A daemon that was started meanwhile looks
        # unrecorded here, but end_unrecorded() reads its record again under the locks.
        for daemon in sorted(set(self._daemons) - {record.group for record in records if record.daemon}):
            name = KINDS.parse(daemon)
            if name is not None and name.pci is not None:
                gpu = {str(name.pci)}
                self._under_lock(daemon, gpu, partial(self._shares.end_unrecorded, daemon, gpu))

    def follow(self) -> None:
        """Follow the supervisor from the first use of MPS until ``stop``. Needs a thread of its own."""
        if self._mps.wait_for_use():
            self._mps.follow(self._on_states)

    def stop(self) -> None:
        """Make ``follow`` return."""
        self._mps.close()

    def _on_states(self, states: tuple[MpsState, ...] | None) -> None:
        self._daemons = tuple(state.name for state in states or ())
        self._watch.daemons(states)

    def _under_lock(
        self, group: str, gpus: Iterable[str], work: Callable[[], None]
    ) -> tuple[BlockedPlacement, ...]:
        """Do the work with the GPUs locked; returns the GPUs if a program of the driver hangs."""
        try:
            with self._locks.holding(map(gpu_key, gpus), _LOCK_SECONDS):
                work()
        except DriverError as error:
            _log.warning("cannot restore the sharing of GPUs yet", group=group, error=str(error))
            found = _hangs(error)
            if found is not None:
                return tuple(
                    BlockedPlacement(PciAddress.parse(pci), None, "driver-hangs", found.what)
                    for pci in sorted(gpus)
                )
        return ()


def _hangs(error: BaseException | None) -> ProgramHangs | None:
    """The ProgramHangs that caused an error, None if it has another cause."""
    while error is not None and not isinstance(error, ProgramHangs):
        error = error.__cause__
    return error
